// From a line of the disassembly to an instruction. LLVM has decoded it; here its words are read.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "program.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

// An operand as it is written.
struct Written {
  Operand operand;
  bool negated = false, absolute = false;
  bool is_real = false, is_literal = false;
  double real = 0;
  i64 integer = 0;
};

[[noreturn]] void uncovered(Wave&, const Instruction& i) {
  throw Finding{Finding::Kind::uncovered,
                "The emulator does not know this instruction, or a word of it: '" + i.text + "'."};
}

bool starts_with(std::string_view text, std::string_view begin) {
  return text.substr(0, begin.size()) == begin;
}
bool take_prefix(std::string_view& text, std::string_view begin) {
  if (!starts_with(text, begin)) return false;
  text.remove_prefix(begin.size());
  return true;
}
i64 number(std::string_view text) { return std::strtoll(std::string(text).c_str(), nullptr, 0); }

// Words are separated by commas and spaces outside of brackets.
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  int depth = 0;
  for (const char c : std::string(text) + " ") {
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (depth == 0 && (c == ',' || c == ' ')) {
      if (!word.empty()) words.push_back(word);
      word.clear();
    } else {
      word += c;
    }
  }
  return words;
}

struct NamedRegister {
  std::string_view name;
  i16 reg;
  u8 count;
};
constexpr NamedRegister kNamed[] = {
    {"vcc", kVcc, 2},
    {"vcc_lo", kVcc, 1},
    {"vcc_hi", kVcc + 1, 1},
    {"exec", kExec, 2},
    {"exec_lo", kExec, 1},
    {"exec_hi", kExec + 1, 1},
    {"m0", kM0, 1},
    {"null", kNull, 1},
    {"ttmp7", kTrap + 7, 1},
    {"ttmp9", kTrap + 9, 1},
    {"flat_scratch", kFlatScratch, 2},
    {"flat_scratch_lo", kFlatScratch, 1},
    {"flat_scratch_hi", kFlatScratch + 1, 1},
};

// v0, s[0:3], a4, vcc and so on.
std::optional<Operand> read_register(std::string_view text) {
  Operand o;
  for (const NamedRegister& n : kNamed) {
    if (text != n.name) continue;
    o.kind = Operand::Kind::scalar;
    o.reg = n.reg;
    o.count = n.count;
    return o;
  }
  if (text.size() < 2 || std::string_view("vsa").find(text[0]) == std::string_view::npos) return {};
  std::string_view digits = text.substr(1);
  const bool several = take_prefix(digits, "[");
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return {};
  const i64 first = number(digits.substr(0, digits.find_first_not_of("0123456789")));
  const std::size_t colon = digits.find(':');
  const i64 last = several && colon != std::string_view::npos
                       ? number(digits.substr(colon + 1, digits.find(']') - colon - 1))
                       : first;
  o.kind = text[0] == 's' ? Operand::Kind::scalar : Operand::Kind::vector;
  o.reg = static_cast<i16>(first + (text[0] == 'a' ? kAccumulators : 0));
  o.count = static_cast<u8>(last - first + 1);
  if (text.ends_with(".l")) o.part = {0, 16, false};
  if (text.ends_with(".h")) o.part = {16, 16, false};
  const i64 limit = o.kind == Operand::Kind::scalar ? kVcc : kVectors;
  if (last < first || o.reg + o.count > limit) return {};
  return o;
}

std::optional<Written> read_constant(std::string_view text) {
  Written w;
  if (take_prefix(text, "lit(") && !text.empty()) text.remove_suffix(1);  // lit(0x1)
  w.is_literal = starts_with(text, "0x");
  w.is_real = !w.is_literal && text.find('.') != std::string_view::npos;
  if (w.is_real) {  // strtod() asks the locale what a decimal point is
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, w.real);
    if (error != std::errc() || end != last) return {};
  } else {
    const std::string copy(text);
    char* end = nullptr;
    w.integer = std::strtoll(copy.c_str(), &end, 0);
    if (end == copy.c_str() || *end != 0) return {};
  }
  w.operand.kind = Operand::Kind::constant;
  return w;
}

std::optional<Written> read_operand(std::string_view text) {
  if (text == "off") return Written{};
  if (auto constant = read_constant(text)) return constant;
  Written w;
  bool sign = false;
  w.negated = take_prefix(text, "-");
  if (take_prefix(text, "sext(")) {
    sign = true;
    text.remove_suffix(1);
  }
  if (text.size() > 2 && text[0] == '|') {
    w.absolute = true;
    text = text.substr(1, text.size() - 2);
  }
  const auto found = read_register(text);
  if (!found) return {};
  w.operand = *found;
  w.operand.part.sign = sign;
  return w;
}

// A constant's bits, as the instruction reads them; see Row.
u64 constant_bits(const Written& w, char letter) {
  const u64 integer = static_cast<u64>(w.integer);
  const u32 real = as_bits(static_cast<float>(w.real));
  switch (letter) {
    case 'h':
      return w.is_real ? float_to_half(static_cast<float>(w.real)) : integer & 0xffffffffU;
    case 'P': {
      const u64 both = w.is_real ? real : integer & 0xffffffffU;
      return both << 32 | both;
    }
    case 'F':
      if (w.is_real) return as_bits(w.real);
      return w.is_literal ? integer << 32 : integer;
    case 'U':
    case 'S':
      return w.is_real ? as_bits(w.real) : integer;
    default:
      return w.is_real ? real : integer & 0xffffffffU;
  }
}

bool is_source(char letter) {
  return std::string_view("dDxX").find(letter) == std::string_view::npos;
}

// Sets how a source with the letter is read. False for a negation that the letter does not have.
bool finish_operand(Instruction& i, std::size_t n, Written& w, char letter) {
  Operand& o = w.operand;
  if (o.kind == Operand::Kind::scalar && o.reg == kNull && is_source(letter)) {
    o.kind = Operand::Kind::constant;
    return true;
  }
  if (letter == 'd' && o.part.width == 16) {  // v0.h: the other half stays
    i.to = o.part;
    i.rest = Instruction::Rest::kept;
    o.part = {};
  }
  if (o.kind == Operand::Kind::constant) o.bits = constant_bits(w, letter);
  if (letter == 'm') {
    i.neg_lo |= (w.negated ? 1U : 0U) << (n - 1);
    i.neg_hi |= (w.absolute ? 1U : 0U) << (n - 1);
  } else if (w.negated || w.absolute) {
    if (letter != 'f' && letter != 'F' && letter != 'h') return false;
    const u32 sign = letter == 'h' ? 0x8000U : 0x80000000U;
    if (w.absolute) o.keep = ~sign;
    if (w.negated) o.flip = sign;
  }
  return true;
}

// ---- modifiers ----
u32 list_bits(std::string_view list) {  // "[1,0,1]" to 0b101
  u32 bits = 0;
  int n = 0;
  for (const char c : list) {
    if (c == '0' || c == '1') bits |= static_cast<u32>(c - '0') << n++;
  }
  return bits;
}
void set_dpp(Instruction& i, Dpp::Kind kind, std::string_view value) {
  i.dpp.kind = kind;
  i.dpp.count = static_cast<u8>(value.empty() ? 0 : number(value));
}
Part part_of(std::string_view word) {
  const u8 index = static_cast<u8>(word.back() - '0');
  if (starts_with(word, "BYTE_")) return {static_cast<u8>(8 * index), 8, false};
  if (starts_with(word, "WORD_")) return {static_cast<u8>(16 * index), 16, false};
  return {};
}
std::size_t first_source(std::string_view letters) {
  return static_cast<std::size_t>(std::find_if(letters.begin(), letters.end(), is_source) -
                                  letters.begin());
}
void set_source_part(Instruction& i, std::size_t n, std::string_view word) {
  const bool sign = i.operands[n].part.sign;
  i.operands[n].part = part_of(word);
  i.operands[n].part.sign = sign;
}

using Value = std::string_view;
struct Modifier {
  std::string_view name;
  void (*set)(Instruction&, Value, std::string_view letters);
};
constexpr Modifier kModifiers[] = {
    {"offset", [](Instruction& i, Value v, Value) { i.offset = static_cast<i32>(number(v)); }},
    {"offset0", [](Instruction& i, Value v, Value) { i.offset0 = static_cast<i32>(number(v)); }},
    {"offset1", [](Instruction& i, Value v, Value) { i.offset1 = static_cast<i32>(number(v)); }},
    {"offen", [](Instruction& i, Value, Value) { i.offen = true; }},
    {"idxen", [](Instruction& i, Value, Value) { i.idxen = true; }},
    {"lds", [](Instruction& i, Value, Value) { i.lds = true; }},
    {"sc0", [](Instruction& i, Value, Value) { i.returns = true; }},
    {"th", [](Instruction& i, Value v, Value) { i.returns = v == "TH_ATOMIC_RETURN"; }},
    {"scope", [](Instruction&, Value, Value) {}},
    {"dlc", [](Instruction&, Value, Value) {}},
    {"glc", [](Instruction& i, Value, Value) { i.returns = true; }},
    {"sc1", [](Instruction&, Value, Value) {}},
    {"slc", [](Instruction&, Value, Value) {}},
    {"scc", [](Instruction&, Value, Value) {}},
    {"nt", [](Instruction&, Value, Value) {}},
    {"clamp", [](Instruction& i, Value, Value) { i.clamp = true; }},
    {"mul", [](Instruction& i, Value v, Value) { i.scale = v == "4" ? 2 : 1; }},
    {"div", [](Instruction& i, Value, Value) { i.scale = -1; }},
    {"op_sel", [](Instruction& i, Value v, Value) { i.op_sel = list_bits(v); }},
    {"op_sel_hi",
     [](Instruction& i, Value v, Value) {
       i.op_sel_hi = list_bits(v);
       i.has_op_sel_hi = true;
     }},
    {"neg_lo", [](Instruction& i, Value v, Value) { i.neg_lo = list_bits(v); }},
    {"neg_hi", [](Instruction& i, Value v, Value) { i.neg_hi = list_bits(v); }},
    {"cbsz", [](Instruction& i, Value v, Value) { i.cbsz = static_cast<u8>(number(v)); }},
    {"blgp", [](Instruction& i, Value v, Value) { i.blgp = static_cast<u8>(number(v)); }},
    {"bitop3", [](Instruction& i, Value v, Value) { i.immediate = static_cast<u32>(number(v)); }},
    {"quad_perm",
     [](Instruction& i, Value v, Value) {
       i.dpp.kind = Dpp::Kind::quad_perm;
       for (std::size_t n = 0; n < 4; ++n) i.dpp.quad[n] = static_cast<u8>(v[1 + 2 * n] - '0');
     }},
    {"row_shl", [](Instruction& i, Value v, Value) { set_dpp(i, Dpp::Kind::row_shl, v); }},
    {"row_shr", [](Instruction& i, Value v, Value) { set_dpp(i, Dpp::Kind::row_shr, v); }},
    {"row_ror", [](Instruction& i, Value v, Value) { set_dpp(i, Dpp::Kind::row_ror, v); }},
    {"wave_shl", [](Instruction& i, Value v, Value) { set_dpp(i, Dpp::Kind::wave_shl, v); }},
    {"wave_shr", [](Instruction& i, Value v, Value) { set_dpp(i, Dpp::Kind::wave_shr, v); }},
    {"row_mirror", [](Instruction& i, Value v, Value) { set_dpp(i, Dpp::Kind::row_mirror, v); }},
    {"row_half_mirror",
     [](Instruction& i, Value v, Value) { set_dpp(i, Dpp::Kind::row_half_mirror, v); }},
    {"row_newbcast",
     [](Instruction& i, Value v, Value) { set_dpp(i, Dpp::Kind::row_newbcast, v); }},
    {"row_bcast",
     [](Instruction& i, Value v, Value) {
       i.dpp.kind = v == "15" ? Dpp::Kind::row_bcast15 : Dpp::Kind::row_bcast31;
     }},
    {"row_mask",
     [](Instruction& i, Value v, Value) { i.dpp.row_mask = static_cast<u8>(number(v)); }},
    {"bank_mask",
     [](Instruction& i, Value v, Value) { i.dpp.bank_mask = static_cast<u8>(number(v)); }},
    {"bound_ctrl", [](Instruction& i, Value, Value) { i.dpp.zeros = true; }},
    {"src0_sel",
     [](Instruction& i, Value v, Value letters) { set_source_part(i, first_source(letters), v); }},
    {"src1_sel", [](Instruction& i, Value v,
                    Value letters) { set_source_part(i, first_source(letters) + 1, v); }},
    {"byte_sel",  // of what 8-bit floats a conversion reads
     [](Instruction& i, Value v, Value) {
       i.operands[1].part = {static_cast<u8>(8 * number(v)), 8, false};
     }},
    {"dst_sel", [](Instruction& i, Value v, Value) { i.to = part_of(v); }},
    {"dst_unused",
     [](Instruction& i, Value v, Value) {
       i.rest = v == "UNUSED_PRESERVE" ? Instruction::Rest::kept
                : v == "UNUSED_SEXT"   ? Instruction::Rest::sign
                                       : Instruction::Rest::zeros;
     }},
};

bool apply_modifier(Instruction& i, std::string_view word, std::string_view letters) {
  const std::size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  const std::string_view value = colon == std::string_view::npos ? Value{} : word.substr(colon + 1);
  if (value.find("swizzle") != std::string_view::npos) return false;
  for (const Modifier& m : kModifiers) {
    if (m.name != name) continue;
    m.set(i, value, letters);
    return true;
  }
  return false;
}

// ---- instructions whose words have a form of their own ----
// "vmcnt(3) lgkmcnt(0)"
bool read_wait(Instruction& i, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const std::size_t open = word.find('(');
    if (open == std::string::npos) return false;
    const i32 left = static_cast<i32>(number(std::string_view(word).substr(open + 1)));
    const std::string_view name = std::string_view(word).substr(0, open);
    if (name == "vmcnt") i.vm_left = left;
    if (name == "lgkmcnt") i.lgkm_left = left;
    if (name != "vmcnt" && name != "lgkmcnt" && name != "expcnt") return false;
  }
  return true;
}
// "hwreg(HW_REG_MODE, 23, 1)": the register's number, the first bit, and the bits less one.
bool read_hardware_register(Instruction& i, std::string_view word) {
  if (!take_prefix(word, "hwreg(HW_REG_MODE")) return false;
  u32 first = 0, bits = 32;
  if (take_prefix(word, ", ")) {
    first = static_cast<u32>(number(word));
    bits = static_cast<u32>(number(word.substr(word.find(',') + 2)));
  }
  i.immediate = 1U | first << 6 | (bits - 1) << 11;
  return true;
}

// What runs it, and the letters of its operands.
std::string_view find_run(Instruction& i) {
  if (const Row* row = find_row(i.name)) {
    i.run = row->run;
    return row->operands;
  }
  if ((i.mfma = find_mfma_row(i.name)) != nullptr) {
    i.run = i.mfma->wmma ? run_wmma : run_mfma;
    return i.mfma->scaled ? "duufuu" : "duuf";
  }
  if ((i.memory = find_lds_row(i.name)) != nullptr) {
    i.run = run_lds;
    i.returns = i.name.find("_rtn_") != std::string::npos;
    return "*";
  }
  for (const std::string_view prefix : {"global_", "flat_", "buffer_"}) {
    if (!starts_with(i.name, prefix)) continue;
    i.memory = find_global_memory_row(std::string_view(i.name).substr(prefix.size()));
    if (i.memory == nullptr) return "*";
    i.run = prefix == "buffer_" ? run_buffer : run_global;
    i.lds = i.name.find("_lds_") != std::string::npos;
  }
  return "*";
}

// Functions that read op_sel by themselves.
bool reads_op_sel(std::string_view name) {
  for (const std::string_view begin :
       {"v_pk_", "v_fma_mix", "v_cvt_pk_fp8", "v_cvt_pk_bf8", "v_dot"}) {
    if (starts_with(name, begin)) return true;
  }
  return false;
}
// op_sel of others: the upper halves of sources and, by the bit after those, of the result.
void apply_op_sel(Instruction& i) {
  const std::size_t sources = i.num_operands - 1U;
  for (std::size_t n = 0; n < sources; ++n) {
    if ((i.op_sel >> n & 1U) != 0) i.operands[n + 1].part = {16, 16, false};
  }
  if ((i.op_sel >> sources & 1U) == 0) return;
  i.to = {16, 16, false};
  i.rest = Instruction::Rest::kept;
}

// What a modifier means for operands and result. False for a combination that no function knows.
bool apply_modifiers(Instruction& i, std::string_view letters) {
  if (i.memory != nullptr && i.memory->kind != MemoryRow::Kind::atomic) i.returns = false;
  if (i.mfma != nullptr && i.mfma->wmma) return !i.clamp;
  if (i.mfma != nullptr) return i.mfma->formats || (i.cbsz == 0 && i.blgp == 0);
  if (starts_with(i.name, "v_fma_mix") && !i.has_op_sel_hi) i.op_sel_hi = 0;
  if (i.op_sel != 0 && !reads_op_sel(i.name)) apply_op_sel(i);
  const std::size_t first = first_source(letters);
  if (i.dpp.kind != Dpp::Kind::none) i.operands[first].moved = true;
  i.special = i.dpp.kind != Dpp::Kind::none || i.to.width != 32;
  if (i.special && letters[0] != 'd') return false;
  const bool has_floats = first < letters.size() &&
                          std::string_view("fhmP").find(letters[first]) != std::string_view::npos;
  return has_floats || (!i.clamp && i.scale == 0);
}

bool read_words(Instruction& i, const std::vector<std::string>& words, std::string_view letters) {
  if (i.name == "s_waitcnt") return read_wait(i, words);
  if (starts_with(i.name, "v_cmpx_")) i.operands[i.num_operands++] = *read_register("exec_lo");
  std::vector<std::string_view> modifiers;
  for (const std::string& word : words) {
    if (starts_with(word, "hwreg(")) {
      if (!read_hardware_register(i, word)) return false;
      continue;
    }
    auto written = read_operand(word);
    if (!written) {
      modifiers.push_back(word);
      continue;
    }
    const std::size_t n = i.num_operands;
    if (n == i.operands.size() || (letters != "*" && n >= letters.size())) return false;
    if (!finish_operand(i, n, *written, letters == "*" ? 'u' : letters[n])) return false;
    i.operands[i.num_operands++] = written->operand;
  }
  if (letters == "*" && i.memory == nullptr) return true;  // hints, whose words say nothing
  if (letters != "*" && i.num_operands != letters.size()) return false;
  for (const std::string_view word : modifiers) {
    if (!apply_modifier(i, word, letters)) return false;
  }
  return apply_modifiers(i, letters);
}

// "v_dual_mov_b32 v0, v1 :: v_dual_add_f32 v2, v3, v4": two instructions whose choices are by vcc.
Instruction decode_pair(const std::string& text, u64 address) {
  constexpr std::string_view kBetween = " :: ", kDual = "v_dual_", kChoice = "cndmask_b32 ";
  std::array<Instruction, 2> both;
  const std::size_t middle = text.find(kBetween);
  for (std::size_t n = 0; n < 2 && middle != std::string::npos; ++n) {
    std::string part = n == 0 ? text.substr(0, middle) : text.substr(middle + kBetween.size());
    part.erase(0, std::min(kDual.size(), part.size()));
    if (starts_with(part, kChoice)) part += ", vcc_lo";
    both[n] = decode("v_" + part, address);
  }
  Instruction i;
  i.address = address;
  i.text = text;
  i.name = text.substr(0, text.find(' '));
  const bool known = both[0].run != nullptr && both[0].run != uncovered && both[1].run != uncovered;
  i.run = known ? run_both : uncovered;
  i.both = std::make_shared<const std::array<Instruction, 2>>(std::move(both));
  return i;
}

}  // namespace

Instruction decode(const std::string& text, u64 address) {
  if (starts_with(text, "v_dual_")) return decode_pair(text, address);
  Instruction i;
  i.address = address;
  i.text = text;
  const std::size_t space = text.find(' ');
  i.name = text.substr(0, space);
  for (const std::string_view suffix : {"_e32", "_e64", "_dpp", "_sdwa"}) {
    if (i.name.size() > suffix.size() && std::string_view(i.name).ends_with(suffix)) {
      i.name.resize(i.name.size() - suffix.size());
    }
  }
  const std::string_view letters = find_run(i);
  const auto words = split(space == std::string::npos ? "" : text.substr(space + 1));
  if (i.run == nullptr || !read_words(i, words, letters)) i.run = uncovered;
  for (std::size_t n = 0; n < i.num_operands; ++n) {
    Operand& o = i.operands[n];
    o.plain = o.kind == Operand::Kind::vector && !o.moved && o.part.width == 32 && o.keep == ~0U &&
              o.flip == 0;
  }
  if (letters == "b") i.immediate = static_cast<u32>(i.operands[0].bits);
  return i;
}

}  // namespace tessera::cdna_emulator
