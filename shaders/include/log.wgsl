// needs: nan
// The natural logarithm with its edges: of 0 it is -infinity, of infinity infinity and of
// a negative x NaN. A driver is known that says -88, 88 and the logarithm of |x|.
fn whole_log(x: F) -> F {
  let v = inf_where(x > F(3.4028234e38), log(x));
  let w = select(v, -inf_where(x == F(0.0), F(0.0)), x == F(0.0));
  return nan_where(x < F(0.0), w);
}
