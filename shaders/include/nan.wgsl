// NaN and infinity, told and made by their bits, for F of any width: WGSL lets a driver
// assume that no float is either, and min and max may drop a NaN.
fn is_nan(x: F) -> B {
  return (bitcast<U>(x) & U(0x7fffffffu)) > U(0x7f800000u);
}

fn not_finite(x: F) -> B {
  return (bitcast<U>(x) & U(0x7fffffffu)) >= U(0x7f800000u);
}

// v, but NaN where x is.
fn keeps_nan(x: F, v: F) -> F {
  return bitcast<F>(select(bitcast<U>(v), bitcast<U>(x), is_nan(x)));
}

fn nan_where(bad: B, v: F) -> F {
  return bitcast<F>(select(bitcast<U>(v), U(0x7fc00000u), bad));
}

fn inf_where(big: B, v: F) -> F {
  return bitcast<F>(select(bitcast<U>(v), U(0x7f800000u), big));
}

fn ordered(x: F, y: F) -> B {
  return !(is_nan(x) | is_nan(y));
}

fn larger(x: F, y: F) -> F {
  return keeps_nan(y, keeps_nan(x, max(x, y)));
}

fn smaller(x: F, y: F) -> F {
  return keeps_nan(y, keeps_nan(x, min(x, y)));
}
