// The k largest of each chunk of a row, ranked, by one workgroup: a handful of barriers
// whatever k is. Writes indices (access 1) and, for a later walk, keys (access 2).
//
// Every lane finds its own best; the k-th of those is a floor that at least k candidates
// reach and no more than k lanes do, so they fit. The few that reach it are gathered and
// ranked by counting who stands ahead. A list that is not full ends in NOTHING.
const NOTHING = 0xffffffffu;
const ROOM = 1024u;

var<workgroup> best_key: array<u32, 256>;
var<workgroup> best_place: array<u32, 256>;
var<workgroup> found_key: array<u32, ROOM>;
var<workgroup> found_place: array<u32, ROOM>;
var<workgroup> floor_key: u32;
var<workgroup> floor_place: u32;
var<workgroup> found: atomic<u32>;

// Of equal keys the smaller place is ahead; NOTHING is behind all.
fn ahead(key: u32, place: u32, of_key: u32, of_place: u32) -> bool {
  return key > of_key || (key == of_key && place < of_place);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let chunk = item % u.chunk;
  let row = item / u.chunk;
  let line = row * u.x_row + chunk * u.n;
  let list = row * u.y_row + chunk * u.k;
  let start = (u.at_chunk + chunk) * u.n;
  let count = min(u.n, u.line - start);

  var key = 0u;
  var place = NOTHING;
  for (var j = lid; j < count; j += WG) {
    let other = key_of(ld0(line + j));
    let there = place_of(line + j, start + j);
    if (ahead(other, there, key, place)) {
      key = other;
      place = there;
    }
  }
  best_key[lid] = key;
  best_place[lid] = place;
  if (lid == 0u) {
    floor_key = 0u;
    floor_place = NOTHING - 1u;
    atomicStore(&found, 0u);
  }
  workgroupBarrier();
  var above = 0u;
  for (var l = 0u; l < WG; l++) {
    above += u32(ahead(best_key[l], best_place[l], key, place));
  }
  if (above == u.k - 1u && place != NOTHING) {
    floor_key = key;
    floor_place = place;
  }
  workgroupBarrier();
  let least = floor_key;
  let last = floor_place;
  for (var j = lid; j < count; j += WG) {
    let other = key_of(ld0(line + j));
    let there = place_of(line + j, start + j);
    if (other > least || (other == least && there <= last)) {
      let at = atomicAdd(&found, 1u);
      found_key[at] = other;
      found_place[at] = there;
    }
  }
  workgroupBarrier();
  let full = atomicLoad(&found);
  for (var c = lid; c < full; c += WG) {
    let mine = found_key[c];
    let at = found_place[c];
    var rank = 0u;
    for (var other = 0u; other < full; other++) {
      rank += u32(ahead(found_key[other], found_place[other], mine, at));
    }
    if (rank < u.k) { put(list + rank, mine, at); }
  }
  for (var c = full + lid; c < u.k; c += WG) { put(list + c, 0u, NOTHING); }
}

fn put(at: u32, key: u32, place: u32) {
  st1(at, bitcast<i32>(place));
  if (u.last == 0u) { st2(at, key); }
}
