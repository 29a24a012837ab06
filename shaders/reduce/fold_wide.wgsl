// One number out of four neighbours.
fn folded(v: E) -> T {
  let two = combined(v, v.zwxy);
  return combined(two, two.yxwz).x;
}
