// A number as a whole one that is the larger the higher it ranks. The two zeros are
// equal and NaN is below every number; 0 is left for "nothing".
fn key_of(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  let size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) { return 0u; }
  return select(0x80000000u + size, 0x80000000u - size, bits != size);
}
