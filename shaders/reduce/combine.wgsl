// Two elements into one, by what is reduced to.
override KIND: u32 = 0u;  // 0 sum, 1 prod, 2 max, 3 min

fn combined(a: E, b: E) -> E {
  if (KIND == 0u) { return a + b; }
  if (KIND == 1u) { return a * b; }
  if (KIND == 2u) { return larger_of(a, b); }
  return smaller_of(a, b);
}
