// Merges sorted runs of `width` keys (access 0) and their places (1) in pairs; an
// element goes as many places into its pair as stand before it in its own run and,
// found by halving, in the other one. Equal keys stay in order.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let j = item % u.n;
  let inner = item / u.n % u.inner;
  let outer = item / u.n / u.inner;
  let line = outer * u.z_outer + inner * u.z_inner;
  let mine = ld0(line + j);
  let pair = j / (2u * u.width) * 2u * u.width;
  let middle = min(pair + u.width, u.n);
  let is_left = j < middle;
  var low = select(pair, middle, is_left);
  let first = low;
  var high = select(middle, min(pair + 2u * u.width, u.n), is_left);
  while (low < high) {
    let half = (low + high) / 2u;
    let other = ld0(line + half);
    if (other < mine || (other == mine && !is_left)) { low = half + 1u; } else { high = half; }
  }
  let to = select(j - u.width, j, is_left) + low - first;
  if (u.last == 0u) {
    st3(line + to, mine);
  } else if (to >= u.keep) {
    return;
  }
  st2(outer * u.y_outer + inner * u.y_inner + to * u.y_n, ld1(line + j));
}
