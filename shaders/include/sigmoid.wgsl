// 1 / (1 + exp(-x)) without ever taking exp of a positive number, so that nothing
// overflows whatever the size of x.
fn sigmoid(x: F) -> F {
  let e = exp(-min(abs(x), F(104.0)));
  return select(F(1.0), e, x < F(0.0)) / (F(1.0) + e);
}
