#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/io/memory.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include <exception>
#include <limits>
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

// One text in each row.
struct Repeated {
  std::string text;
  std::int64_t rows;
  std::int64_t length() const { return rows; }
  const std::string& GetView(std::int64_t) const { return text; }
};

template <typename Array>
void append_texts(const Array& array, std::map<std::string, std::int32_t>& places, Column& column) {
  for (std::int64_t i = 0; i < array.length(); ++i) {
    const auto code = static_cast<std::int32_t>(column.words.size());
    const auto [found, is_new] = places.emplace(array.GetView(i), code);
    if (is_new) column.words.push_back(found->first);
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

template <typename Array>
bool append_integers(const arrow::Array& chunk, Column& column) {
  append_values<Array>(chunk, column.integers);
  return true;
}

template <typename Array>
bool append_reals(const arrow::Array& chunk, Column& column) {
  append_values<Array>(chunk, column.reals);
  return true;
}

bool is_real(const arrow::DataType& type) {
  return type.id() == arrow::Type::DOUBLE || type.id() == arrow::Type::FLOAT;
}

// An empty table says only by its schema what its columns are.
ColumnType type_of(const arrow::DataType& type) {
  if (is_real(type)) return ColumnType::real;
  const bool whole = arrow::is_integer(type.id()) || type.id() == arrow::Type::BOOL;
  return whole ? ColumnType::integer : ColumnType::text;
}

// False where the chunk has no numbers.
bool append_numbers(const arrow::Array& chunk, Column& column) {
  switch (chunk.type_id()) {
    case arrow::Type::DOUBLE:
      return append_reals<arrow::DoubleArray>(chunk, column);
    case arrow::Type::FLOAT:
      return append_reals<arrow::FloatArray>(chunk, column);
    case arrow::Type::INT64:
      return append_integers<arrow::Int64Array>(chunk, column);
    case arrow::Type::INT32:
      return append_integers<arrow::Int32Array>(chunk, column);
    case arrow::Type::INT16:
      return append_integers<arrow::Int16Array>(chunk, column);
    case arrow::Type::INT8:
      return append_integers<arrow::Int8Array>(chunk, column);
    case arrow::Type::UINT64:
      return append_integers<arrow::UInt64Array>(chunk, column);
    case arrow::Type::UINT32:
      return append_integers<arrow::UInt32Array>(chunk, column);
    case arrow::Type::UINT16:
      return append_integers<arrow::UInt16Array>(chunk, column);
    case arrow::Type::UINT8:
      return append_integers<arrow::UInt8Array>(chunk, column);
    case arrow::Type::BOOL:
      return append_integers<arrow::BooleanArray>(chunk, column);
    default:
      return false;
  }
}

// Writers that know no texts store them as bytes. pandas stores repeated ones as dictionaries.
// Values of a type that measurements do not have, such as lists, become the type's name: where the
// column is used, its reader refuses that.
void append(const arrow::Array& chunk, std::map<std::string, std::int32_t>& places,
            Column& column) {
  if (append_numbers(chunk, column)) return;
  switch (chunk.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return append_texts(static_cast<const arrow::BinaryArray&>(chunk), places, column);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return append_texts(static_cast<const arrow::LargeBinaryArray&>(chunk), places, column);
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
      return append_texts(static_cast<const arrow::BinaryViewArray&>(chunk), places, column);
    default:
      return append_texts(Repeated{chunk.type()->ToString(), chunk.length()}, places, column);
  }
}

template <typename Words>
arrow::Result<std::shared_ptr<arrow::Array>> looked_up(const arrow::DictionaryArray& array) {
  const auto& words = static_cast<const Words&>(*array.dictionary());
  arrow::LargeStringBuilder builder;
  for (std::int64_t i = 0; i < array.length(); ++i) {
    ARROW_RETURN_NOT_OK(builder.Append(words.GetView(array.GetValueIndex(i))));
  }
  return builder.Finish();
}

arrow::Result<std::shared_ptr<arrow::Array>> plain(const std::shared_ptr<arrow::Array>& chunk) {
  if (chunk->type_id() != arrow::Type::DICTIONARY) return chunk;
  const auto& array = static_cast<const arrow::DictionaryArray&>(*chunk);
  switch (array.dictionary()->type_id()) {
    case arrow::Type::STRING:
      return looked_up<arrow::StringArray>(array);
    case arrow::Type::LARGE_STRING:
      return looked_up<arrow::LargeStringArray>(array);
    case arrow::Type::STRING_VIEW:
      return looked_up<arrow::StringViewArray>(array);
    default:
      return chunk;
  }
}

bool too_large(const arrow::ChunkedArray& column) {
  if (column.type()->id() != arrow::Type::UINT64) return false;
  for (const auto& chunk : column.chunks()) {
    const auto& values = static_cast<const arrow::UInt64Array&>(*chunk);
    for (std::int64_t i = 0; i < values.length(); ++i) {
      if (values.Value(i) > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return true;
    }
  }
  return false;
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
    for (const auto& chunk : whole->column(i)->chunks()) {
      if (chunk->null_count() > 0) {
        return arrow::Status::Invalid("column '", field.name(), "' has ", chunk->null_count(),
                                      " rows without a value");
      }
      ARROW_ASSIGN_OR_RAISE(const auto values, plain(chunk));
      append(*values, places, column);
    }
    if (too_large(*whole->column(i))) {
      return arrow::Status::Invalid("column '", field.name(), "' has a number of 2^63 or more");
    }
    table.columns.push_back(std::move(column));
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
