// needs: nan, two_to
// What a division leaves, exactly, for F of any width: mantissas divide as whole numbers,
// eight binary places at a time.
fn exact_fmod(x: F, y: F) -> F {
  let a = bitcast<U>(x) & U(0x7fffffffu);
  let b = bitcast<U>(y) & U(0x7fffffffu);
  let a_place = max(a >> U(23u), U(1u));
  let b_place = max(b >> U(23u), U(1u));
  let divisor = max(mantissa(b), U(1u));
  let far = a_place >= b_place;
  var m = mantissa(a) % divisor;
  var left = select(U(0u), a_place - b_place, far);
  for (var turn = 0u; turn < 32u; turn++) {
    if (all(left == U(0u))) { break; }
    let by = min(left, U(8u));
    m = (m << by) % divisor;
    left = left - by;
  }
  let n = I(b_place) - I(150);
  let half = n >> U(1u);
  let v = F(m) * two_to(half) * two_to(n - half);
  let rest = select(abs(x), v, far);
  let signed = select(rest, -rest, x < F(0.0));
  return nan_where(not_finite(x) | is_nan(y) | (b == U(0u)), signed);
}

fn mantissa(bits: U) -> U {
  return (bits & U(0x7fffffu)) | select(U(0u), U(0x800000u), bits >= U(0x800000u));
}

// The rest with the divisor's sign, as Python's %.
fn floored_mod(x: F, y: F) -> F {
  let r = exact_fmod(x, y);
  let turned = (r != F(0.0)) & ((r < F(0.0)) != (y < F(0.0)));
  return keeps_nan(r, select(r, r + y, turned));
}

// The quotient downward, from the rest: x / y itself may round up to a whole number.
fn floored_div(x: F, y: F) -> F {
  let r = exact_fmod(x, y);
  let turned = (r != F(0.0)) & ((r < F(0.0)) != (y < F(0.0)));
  let whole = round(quotient(x - r, y)) - select(F(0.0), F(1.0), turned);
  return select(keeps_nan(r, whole), x / y, y == F(0.0));
}
