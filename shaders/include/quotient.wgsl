// x / y for every y. WGSL asks it of a device only up to 2^126: some multiply by 1 / y,
// which is 0 there, and make NaN of an infinite x. A quarter of both divides as they do.
// Nor is x / x 1 where x is 0 or not finite, which a driver that sees both takes it for.
fn quotient(x: F, y: F) -> F {
  let part = select(F(1.0), F(0.25), abs(y) > F(8.5070592e37));
  return opaque((x * part) / (opaque(y) * part));
}
