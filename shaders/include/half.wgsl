// needs: nan
// A float as float16 holds it, for F of any width. quantizeToF16 may lose what is below
// float16's normal numbers, and leaves what is past its range to the driver.
fn half(x: F) -> F {
  let inside = quantizeToF16(clamp(x, F(-65504.0), F(65504.0)));
  let small = round(clamp(x, F(-1.0), F(1.0)) * F(16777216.0)) * F(5.9604644775390625e-8);
  let v = select(inside, small, abs(x) < F(6.103515625e-5));
  let endless = (bitcast<U>(x) & U(0x80000000u)) | U(0x7f800000u);
  return keeps_nan(x, bitcast<F>(select(bitcast<U>(v), endless, abs(x) >= F(65520.0))));
}
