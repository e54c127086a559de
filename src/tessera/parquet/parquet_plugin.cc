#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/io/memory.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include <exception>
#include <map>

#include "tessera/measure/parquet.h"

namespace tessera::measure {
namespace {

using ArrowColumn = std::pair<std::shared_ptr<arrow::Field>, std::shared_ptr<arrow::Array>>;

constexpr std::int64_t kRowsPerGroup = 1 << 20;
constexpr int kZstdLevel = 9;

// Parquet makes dictionaries of repeated texts by itself.
arrow::Result<ArrowColumn> to_arrow(const Column& column) {
  std::shared_ptr<arrow::Array> array;
  if (column.type == ColumnType::text) {
    arrow::StringBuilder builder;
    for (const std::int32_t code : column.codes) {
      ARROW_RETURN_NOT_OK(builder.Append(column.words[static_cast<std::size_t>(code)]));
    }
    ARROW_RETURN_NOT_OK(builder.Finish(&array));
    return ArrowColumn{arrow::field(column.name, arrow::utf8(), false), array};
  }
  if (column.type == ColumnType::real) {
    arrow::DoubleBuilder builder;
    ARROW_RETURN_NOT_OK(builder.AppendValues(column.reals));
    ARROW_RETURN_NOT_OK(builder.Finish(&array));
    return ArrowColumn{arrow::field(column.name, arrow::float64(), false), array};
  }
  arrow::Int64Builder builder;
  ARROW_RETURN_NOT_OK(builder.AppendValues(column.integers));
  ARROW_RETURN_NOT_OK(builder.Finish(&array));
  return ArrowColumn{arrow::field(column.name, arrow::int64(), false), array};
}

arrow::Status write(const ColumnTable& table, std::string& bytes) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const Column& column : table.columns) {
    ARROW_ASSIGN_OR_RAISE(ArrowColumn made, to_arrow(column));
    fields.push_back(made.first);
    arrays.push_back(made.second);
  }
  const auto whole = arrow::Table::Make(arrow::schema(fields), arrays, table.rows);
  ARROW_ASSIGN_OR_RAISE(auto out, arrow::io::BufferOutputStream::Create());
  const auto properties = parquet::WriterProperties::Builder()
                              .compression(parquet::Compression::ZSTD)
                              ->compression_level(kZstdLevel)
                              ->build();
  ARROW_RETURN_NOT_OK(parquet::arrow::WriteTable(*whole, arrow::default_memory_pool(), out,
                                                 kRowsPerGroup, properties));
  ARROW_ASSIGN_OR_RAISE(const auto buffer, out->Finish());
  bytes = buffer->ToString();
  return arrow::Status::OK();
}

// ---- reading ----

template <typename Array>
void append_texts(const Array& array, std::map<std::string, std::int32_t>& places, Column& column) {
  for (std::int64_t i = 0; i < array.length(); ++i) {
    const std::string text(array.GetView(i));
    const auto [found, is_new] =
        places.emplace(text, static_cast<std::int32_t>(column.words.size()));
    if (is_new) column.words.push_back(text);
    column.codes.push_back(found->second);
  }
}

template <typename Array, typename Value>
void append_values(const arrow::Array& chunk, std::vector<Value>& values) {
  const auto& array = static_cast<const Array&>(chunk);
  for (std::int64_t i = 0; i < array.length(); ++i) {
    values.push_back(static_cast<Value>(array.Value(i)));
  }
}

// False for a type that measurements do not have.
bool append(const arrow::Array& chunk, std::map<std::string, std::int32_t>& places,
            Column& column) {
  switch (chunk.type_id()) {
    case arrow::Type::STRING:
      column.type = ColumnType::text;
      append_texts(static_cast<const arrow::StringArray&>(chunk), places, column);
      return true;
    case arrow::Type::LARGE_STRING:
      column.type = ColumnType::text;
      append_texts(static_cast<const arrow::LargeStringArray&>(chunk), places, column);
      return true;
    case arrow::Type::DOUBLE:
      column.type = ColumnType::real;
      append_values<arrow::DoubleArray>(chunk, column.reals);
      return true;
    case arrow::Type::INT64:
      column.type = ColumnType::integer;
      append_values<arrow::Int64Array>(chunk, column.integers);
      return true;
    case arrow::Type::INT32:
      column.type = ColumnType::integer;
      append_values<arrow::Int32Array>(chunk, column.integers);
      return true;
    case arrow::Type::BOOL:
      column.type = ColumnType::integer;
      append_values<arrow::BooleanArray>(chunk, column.integers);
      return true;
    default:
      return false;
  }
}

// An empty table says only by its schema what its columns are.
ColumnType type_of(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DOUBLE) return ColumnType::real;
  const bool whole = type.id() == arrow::Type::INT64 || type.id() == arrow::Type::INT32 ||
                     type.id() == arrow::Type::BOOL;
  return whole ? ColumnType::integer : ColumnType::text;
}

// pandas stores repeated texts as dictionaries.
arrow::Result<std::shared_ptr<arrow::Array>> plain(const std::shared_ptr<arrow::Array>& chunk) {
  if (chunk->type_id() != arrow::Type::DICTIONARY) return chunk;
  const auto& array = static_cast<const arrow::DictionaryArray&>(*chunk);
  if (array.dictionary()->type_id() != arrow::Type::STRING) return chunk;
  const auto& words = static_cast<const arrow::StringArray&>(*array.dictionary());
  arrow::StringBuilder builder;
  for (std::int64_t i = 0; i < array.length(); ++i) {
    ARROW_RETURN_NOT_OK(builder.Append(words.GetView(array.GetValueIndex(i))));
  }
  return builder.Finish();
}

arrow::Status read(const std::string& file, ColumnTable& table) {
  ARROW_ASSIGN_OR_RAISE(auto in, arrow::io::ReadableFile::Open(file));
  ARROW_ASSIGN_OR_RAISE(auto reader, parquet::arrow::OpenFile(in, arrow::default_memory_pool()));
  std::shared_ptr<arrow::Table> whole;
  ARROW_ASSIGN_OR_RAISE(whole, reader->ReadTable());
  ARROW_RETURN_NOT_OK(whole->ValidateFull());
  table.rows = whole->num_rows();
  for (int i = 0; i < whole->num_columns(); ++i) {
    const auto& field = *whole->schema()->field(i);
    Column column{field.name(), type_of(*field.type()), {}, {}, {}, {}};
    std::map<std::string, std::int32_t> places;
    bool is_known = true;
    for (const auto& chunk : whole->column(i)->chunks()) {
      if (chunk->null_count() > 0) {
        return arrow::Status::Invalid("column '", field.name(), "' has ", chunk->null_count(),
                                      " rows without a value");
      }
      ARROW_ASSIGN_OR_RAISE(const auto values, plain(chunk));
      is_known = is_known && append(*values, places, column);
    }
    if (is_known) table.columns.push_back(std::move(column));
  }
  return arrow::Status::OK();
}

template <typename Work>
std::string words_of(const Work& work) {
  try {
    const arrow::Status status = work();
    return status.ok() ? std::string() : status.ToString();
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string write_or_say(const ColumnTable& table, std::string& bytes) {
  return words_of([&] { return write(table, bytes); });
}
std::string read_or_say(const std::string& file, ColumnTable& table) {
  return words_of([&] { return read(file, table); });
}

}  // namespace
}  // namespace tessera::measure

extern "C" {
// The name is kParquetSymbol.
[[gnu::visibility("default")]] extern const tessera::measure::ParquetPlugin tessera_parquet_2;
const tessera::measure::ParquetPlugin tessera_parquet_2 = {tessera::measure::write_or_say,
                                                           tessera::measure::read_or_say};
}
