//! Accept.

use levity_wire::accept;

/// The media types that are offered to a client.
pub const OFFERED_TYPES: [&str; 3] = ["text/html", "application/json", "text/plain"];

/// The preferred type does not depend on how elements are spread over lines, and is preferred to any single other one.
pub fn accept(bytes: &[u8]) {
    let lines = || bytes.split(|&byte| byte == b'\n');
    let preferred = accept::preferred(lines(), &OFFERED_TYPES);
    let joined = lines().collect::<Vec<_>>().join(&b',');
    assert_eq!(accept::preferred([&joined[..]], &OFFERED_TYPES), preferred);
    let Some(index) = preferred else {
        let alone = OFFERED_TYPES.map(|one| accept::preferred(lines(), &[one]));
        return assert_eq!(alone, [None; 3]);
    };
    let chosen = OFFERED_TYPES[index];
    for other in OFFERED_TYPES {
        // The first of equal ones.
        let pair = match OFFERED_TYPES.iter().position(|&one| one == other) < Some(index) {
            true => [other, chosen],
            false => [chosen, other],
        };
        let among_two = accept::preferred(lines(), &pair);
        assert_eq!(among_two.map(|index| pair[index]), Some(chosen));
    }
}
