// A whole power of two, from 2^-126 to 2^127.
fn two_to(n: I) -> F {
  return bitcast<F>(U(n + I(127)) << U(23u));
}
