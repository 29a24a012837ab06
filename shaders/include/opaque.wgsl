// v, in a way that no driver sees through: it cannot take a - a for 0, which infinity and
// NaN are not, nor (a + b) - b for a, whose rounding is lost. No call has no items.
fn opaque(v: F) -> F {
  return bitcast<F>(bitcast<U>(v) | U(u32(u.items == 0u)));
}
