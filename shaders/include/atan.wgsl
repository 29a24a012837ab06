// The arc tangent: an odd polynomial (our fit on [0, 1], 1.2e-8) and, above 1,
// pi/2 - atan(1/x). WGSL's own may be off by 4096 ULP.
fn precise_atan(x: F) -> F {
  let a = abs(x);
  let beyond = a > F(1.0);
  let z = select(a, F(1.0) / max(a, F(1.0)), beyond);
  let s = z * z;
  var p = F(-0.0025083879) * s + F(0.013995714);
  p = p * s + F(-0.036669001);
  p = p * s + F(0.063181072);
  p = p * s + F(-0.086889893);
  p = p * s + F(0.1104202);
  p = p * s + F(-0.14279614);
  p = p * s + F(0.1999979);
  p = p * s + F(-0.33333331);
  let v = z + z * s * p;
  let w = select(v, F(1.57079633) - v, beyond);
  return select(w, -w, x < F(0.0));
}
