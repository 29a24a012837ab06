// Bins of regions of images (access 0): the mean, or the largest weighted corner, of
// samples between their elements. A region (1) is two corners, x before y, and has the
// number of its image (2). Rows of samples are cut; a piece carries on from access 3.
//
// Where a sample lies outside it is 0. Of a region that is far larger than its image
// only the samples that may lie inside are walked: from `first` on.
override TAKES_LARGEST: u32 = 0u;

struct Line { begin: f32, step: f32, count: f32, first: f32 }

// Samples of a bin along one axis.
fn line_of(low: f32, high: f32, bin: u32, bins: u32) -> Line {
  let shift = 0.5 * f32(u.aligned);
  let begin = low * u.scale - shift;
  var size = high * u.scale - shift - begin;
  if (u.aligned == 0u) { size = max(size, 1.0); }
  let width = size / f32(bins);
  var count = f32(u.sampling);
  if (u.sampling == 0u) { count = clamp(ceil(width), 0.0, 16777216.0); }
  let step = width / max(count, 1.0);
  let at = begin + f32(bin) * width;
  var first = 0.0;
  if (u.sampling == 0u && step > 0.0) {
    first = clamp(floor((-1.0 - at) / step) - 2.0, 0.0, count);
  }
  return Line(at, step, count, first);
}

struct Taps { low: u32, high: u32, part: f32 }

fn taps_at(place: f32, size: u32) -> Taps {
  let at = max(place, 0.0);
  let low = min(u32(at), size - 1u);
  return Taps(low, min(low + 1u, size - 1u), select(at - f32(low), 0.0, low + 1u >= size));
}

fn is_inside(place: f32, size: u32) -> bool {
  return place >= -1.0 && place <= f32(size);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let q = item % u.q;
  let p = item / u.q % u.p;
  let c = item / u.q / u.p % u.c;
  let r = item / u.q / u.p / u.c;
  let place = r * u.y_r + c * u.y_c + p * u.y_p + q;
  let image = u32(ld2(r));
  if (image >= u.images) {
    if (u.at_image == 0u && u.at_s == 0u) {
      fault(1u);
      st3(place, 0.0);
    }
    return;
  }
  if (image < u.at_image || image - u.at_image >= u.image) { return; }
  let plane = (image - u.at_image) * u.x_image + c * u.x_c;
  let down = line_of(ld1(4u * r + 1u), ld1(4u * r + 3u), u.at_p + p, u.bins_p);
  let across = line_of(ld1(4u * r), ld1(4u * r + 2u), u.at_q + q, u.bins_q);
  let count = max(down.count * across.count, 1.0);

  var total = 0.0;
  var fresh = true;
  if (u.at_s != 0u) {
    total = ld3(place);
    fresh = !(down.count > 0.0 && across.count > 0.0);
  }
  for (var s = 0u; s < u.s; s++) {
    let iy = down.first + f32(u.at_s + s);
    if (!(iy < down.count)) { break; }
    let y = down.begin + (iy + 0.5) * down.step;
    let in_y = is_inside(y, u.rows);
    let above = taps_at(y, u.rows);
    for (var t = 0u; t < u.columns_walked; t++) {
      let ix = across.first + f32(t);
      if (!(ix < across.count)) { break; }
      let x = across.begin + (ix + 0.5) * across.step;
      var corners = vec4<f32>(0.0);
      if (in_y && is_inside(x, u.columns)) {
        let left = taps_at(x, u.columns);
        let first = plane + above.low * u.columns;
        let second = plane + above.high * u.columns;
        corners = vec4<f32>(
          (1.0 - above.part) * (1.0 - left.part) * ld0(first + left.low),
          (1.0 - above.part) * left.part * ld0(first + left.high),
          above.part * (1.0 - left.part) * ld0(second + left.low),
          above.part * left.part * ld0(second + left.high));
      }
      if (TAKES_LARGEST == 0u) {
        total += (corners.x + corners.y + corners.z + corners.w) / count;
        continue;
      }
      let most = larger(larger(corners.x, corners.y), larger(corners.z, corners.w));
      if (fresh) { total = most; } else { total = larger(total, most); }
      fresh = false;
    }
  }
  if (TAKES_LARGEST == 1u && u.at_s == 0u) {
    // Those that were not walked lie outside.
    let walked_y = min(down.count - down.first, f32(u.rows_walked));
    let walked_x = min(across.count - across.first, f32(u.columns_walked));
    if (walked_y < down.count || walked_x < across.count) { total = larger(total, 0.0); }
  }
  st3(place, total);
}
