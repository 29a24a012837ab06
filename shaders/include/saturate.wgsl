// needs: nan
// Float to integer: truncates toward zero, clamps to the integer's range, NaN gives 0.
//
// WGSL leaves an out-of-range conversion to the driver, and a driver may assume there
// is no NaN, so NaN is told by its bits.
fn to_i32(x: F) -> I {
  let inside = I(clamp(x, F(-2147483648.0), F(2147483520.0)));
  let v = select(inside, I(2147483647), x >= F(2147483648.0));
  return select(v, I(0), is_nan(x));
}

fn to_u32(x: F) -> U {
  let inside = U(clamp(x, F(0.0), F(4294967040.0)));
  let v = select(inside, U(4294967295u), x >= F(4294967296.0));
  return select(v, U(0u), is_nan(x));
}
