// Reduces lines of elements that lie side by side: LANES invocations a line, several
// lines a workgroup, long lines in parts. Elements come one by one or four at a time
// (E); each lane has four running results, so that no addition waits for the one before.
override LANES: u32 = 64u;

var<workgroup> shared_results: array<E, 256>;

fn start_of(first: E) -> E {
  if (KIND == 0u) { return E(0); }
  if (KIND == 1u) { return E(1); }
  return first;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let together = WG / LANES;
  let groups = (u.line + together - 1u) / together;
  let part = item / groups;
  let mine = item % groups * together + lid / LANES;
  let lane = lid % LANES;
  // Lanes beyond the last line do it once more and keep the result to themselves.
  let line = min(mine, u.line - 1u);
  let begin = (line * u.x_line + part * u.n) / u.width;
  let count = min(u.n, u.whole - (u.at_part + part) * u.n) / u.width;

  var a = start_of(ld0(begin));
  var b = a;
  var c = a;
  var d = a;
  var j = lane;
  for (; j + 3u * LANES < count; j += 4u * LANES) {
    a = combined(a, ld0(begin + j));
    b = combined(b, ld0(begin + j + LANES));
    c = combined(c, ld0(begin + j + 2u * LANES));
    d = combined(d, ld0(begin + j + 3u * LANES));
  }
  for (; j < count; j += LANES) { a = combined(a, ld0(begin + j)); }
  shared_results[lid] = combined(combined(a, b), combined(c, d));
  workgroupBarrier();
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      shared_results[lid] = combined(shared_results[lid], shared_results[lid + half]);
    }
    workgroupBarrier();
  }
  if (lane == 0u && mine < u.line) {
    st1(line * u.y_line + part, folded(shared_results[lid]));
  }
}
