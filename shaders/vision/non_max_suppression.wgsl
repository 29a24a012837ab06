// Boxes (access 0) of a class in the order (2) of their scores (1): each is kept unless
// it overlaps one that was kept. Their places go to access 3, how many they are to 4; a
// piece carries on from what the one before has kept.
struct Corners { low: vec2<f32>, high: vec2<f32> }

fn corners_of(at: u32) -> Corners {
  let first = vec2<f32>(ld0(at), ld0(at + 1u));
  let second = vec2<f32>(ld0(at + 2u), ld0(at + 3u));
  if (u.centered == 1u) {
    return Corners(first - second * 0.5, first + second * 0.5);
  }
  return Corners(min(first, second), max(first, second));
}

fn area_of(box: Corners) -> f32 {
  return (box.high.x - box.low.x) * (box.high.y - box.low.y);
}

fn overlap(a: Corners, b: Corners) -> bool {
  let sides = min(a.high, b.high) - max(a.low, b.low);
  let shared_area = sides.x * sides.y;
  if (!(sides.x > 0.0 && sides.y > 0.0 && shared_area > 0.0)) { return false; }
  return shared_area / (area_of(a) + area_of(b) - shared_area) > u.overlap;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let class_ = item % u.class_;
  let batch = item / u.class_;
  let boxes = batch * 4u * u.boxes;
  let line = (batch * u.classes + class_) * u.boxes;
  let list = (batch * u.classes + class_) * u.keep;
  let counted = batch * u.classes + class_;
  var count = 0u;
  if (u.at_n == 0u) {
    for (var k = 0u; k < u.keep; k++) { st3(list + k, -1); }
  } else {
    count = u32(ld4(counted));
  }
  for (var j = 0u; j < u.n && count < u.keep; j++) {
    let place = ld2(line + j);
    let score = ld1(line + u32(place));
    // NaN is last of all, and what is not above the least is followed by such alone.
    if (is_nan(score) || (u.limited == 1u && !(score > u.least))) { break; }
    let box = corners_of(boxes + 4u * u32(place));
    var is_free = true;
    for (var k = 0u; k < count && is_free; k++) {
      is_free = !overlap(box, corners_of(boxes + 4u * u32(ld3(list + k))));
    }
    if (is_free) {
      st3(list + count, place);
      count++;
    }
  }
  st4(counted, i32(count));
}
