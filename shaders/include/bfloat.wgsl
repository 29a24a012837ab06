// needs: nan
// A float as bfloat16 holds it, rounded to nearest and halves to even, for F of any
// width: half of the last place kept is added in the bits, and the rest cut off.
fn bfloat(x: F) -> F {
  let bits = bitcast<U>(x);
  let up = bits + ((bits >> U(16u)) & U(1u)) + U(0x7fffu);
  return keeps_nan(x, bitcast<F>(up & U(0xffff0000u)));
}
