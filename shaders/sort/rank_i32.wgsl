// An integer as a whole number that is the larger the higher it ranks.
fn key_of(v: i32) -> u32 {
  return bitcast<u32>(v) ^ 0x80000000u;
}
