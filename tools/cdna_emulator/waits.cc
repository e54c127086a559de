// Loads under way: registers may not be used before their load was waited for.
#include "machine.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

void count_registers(Wave& w, const Pending& p, int step) {
  for (int n = 0; n < p.count; ++n) {
    const std::size_t r = static_cast<std::size_t>(p.first + n);
    u8& awaited = p.scalar ? w.awaited_scalar[r] : w.awaited[r];
    awaited = static_cast<u8>(awaited + step);
  }
  w.num_awaited += static_cast<u32>(p.count * step);
}

void complete(Wave& w, const Pending& p) {
  count_registers(w, p, -1);
  for (const i16 n : p.lds) {
    if (n < 0) continue;
    LdsLanes& lanes = w.lds_lanes[static_cast<std::size_t>(n)];
    if (p.lands) land(w, lanes, *p.from);
    lanes.used = false;
  }
}

void remove(Wave& w, Queue& queue, u32 n) {
  const Pending p = queue.at(n);
  for (u32 k = n; k > 0; --k) queue.at(k) = queue.at(k - 1);
  queue.begin = (queue.begin + 1) % Queue::kSize;
  --queue.count;
  complete(w, p);
}

bool is_load_of(const Instruction& i, std::size_t n) {
  return n == 0 && i.memory != nullptr && !i.lds && i.memory->kind == MemoryRow::Kind::load;
}
bool overlaps(Queue& queue, const Operand& o) {
  for (u32 n = 0; n < queue.count; ++n) {
    const Pending& p = queue.at(n);
    if (!p.scalar && p.first < o.reg + o.count && o.reg < p.first + p.count) return true;
  }
  return false;
}

}  // namespace

void await(Wave& w, Queue& queue, const Pending& pending) {
  // A GPU does not issue more operations than its counters count: it waits for the oldest.
  if (queue.count == Queue::kSize) remove(w, queue, 0);
  queue.at(queue.count++) = pending;
  count_registers(w, pending, 1);
}

// Scalar loads end in any order, so that only a wait for all of them says which ended.
void wait(Wave& w, Queue& queue, u32 left) {
  u32 scalars = 0;
  for (u32 n = 0; n < queue.count; ++n) scalars += queue.at(n).scalar ? 1 : 0;
  if (left == 0 || scalars == 0) {
    while (queue.count > left) remove(w, queue, 0);
    return;
  }
  u32 sure = queue.count > left + scalars ? queue.count - left - scalars : 0;
  for (u32 n = 0; n < queue.count && sure > 0;) {
    if (queue.at(n).scalar) {
      ++n;
      continue;
    }
    remove(w, queue, n);
    --sure;
  }
}

void check_awaited(Wave& w, const Instruction& i) {
  for (std::size_t n = 0; n < i.num_operands; ++n) {
    const Operand& o = i.operands[n];
    u32 found = 0;
    if (o.kind == Operand::Kind::vector) {
      for (int r = 0; r < o.count; ++r) found |= w.awaited[static_cast<std::size_t>(o.reg + r)];
    } else if (o.kind == Operand::Kind::scalar) {
      for (int r = 0; r < o.count; ++r) {
        found |= w.awaited_scalar[static_cast<std::size_t>(o.reg + r)];
      }
    }
    if (found == 0) continue;
    // Loads of one kind end in their order, so that a second one to a register is fine.
    Queue& other = i.name.starts_with("ds_") ? w.vm : w.lgkm;
    if (is_load_of(i, n) && !overlaps(other, o)) continue;
    throw Finding{Finding::Kind::early_use,
                  "A register was used before its load was waited for: '" + i.text + "'."};
  }
}

i16 take_lds_lanes(Wave& w) {
  for (std::size_t n = 0; n < w.lds_lanes.size(); ++n) {
    if (!w.lds_lanes[n].used) {
      w.lds_lanes[n].used = true;
      return static_cast<i16>(n);
    }
  }
  w.lds_lanes.emplace_back().used = true;
  return static_cast<i16>(w.lds_lanes.size() - 1);
}

void touch_again(Wave& w) {
  for (Queue* queue : {&w.vm, &w.lgkm}) {
    for (u32 n = 0; n < queue->count; ++n) {
      const Pending& p = queue->at(n);
      for (const i16 k : p.lds) {
        if (k >= 0 && !p.lands) touch(w, w.lds_lanes[static_cast<std::size_t>(k)], *p.from);
      }
    }
  }
}

}  // namespace tessera::cdna_emulator
