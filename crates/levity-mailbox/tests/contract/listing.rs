//! Lists of boxes.

use crate::harness::for_every_store;

for_every_store! {
    a_list_has_every_box_of_its_set,
    pages_have_every_box_once,
    a_list_goes_on_after_a_box_that_is_gone,
}

mod cases {
    use std::collections::BTreeSet;

    use levity_mailbox::{Name, Settings};

    use crate::harness::*;

    pub fn a_list_has_every_box_of_its_set(rig: &mut Rig) {
        let settings = settings();
        assert!(rig.list(SET, None, 10).is_empty());
        rig.append(&name("b"), &settings, "x");
        rig.append(&name("b"), &settings, "yz");
        rig.open(&name("a"), &settings);
        // Sets whose names begin as that of the other does.
        for set in ["se", "set-1", "set2", "t"] {
            let other = Settings {
                set: set.to_owned(),
                ..(*settings).clone()
            };
            let elsewhere = Name::new(set, b"x").unwrap();
            rig.append(&elsewhere, &other.into(), "x");
        }
        let mut listed = rig.list(SET, None, 10);
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        assert_eq!(listed.len(), 2);
        assert_eq!((&listed[0].name, listed[0].messages), (&name("a"), 0));
        assert_eq!((&listed[1].name, listed[1].messages), (&name("b"), 2));
        assert_eq!(listed[0].bytes, 0);
        assert!(listed[1].bytes > 0);
        assert!(rig.list("nothing", None, 10).is_empty());
        assert!(rig.list(SET, None, 0).is_empty());
    }

    fn all_pages(rig: &mut Rig, count_max: usize) -> Vec<Name> {
        let mut names: Vec<Name> = Vec::new();
        loop {
            let page = rig.list(SET, names.last(), count_max);
            assert!(page.len() <= count_max);
            if page.is_empty() {
                return names;
            }
            names.extend(page.into_iter().map(|summary| summary.name));
            assert!(names.len() < 1000, "an endless list");
        }
    }

    pub fn pages_have_every_box_once(rig: &mut Rig) {
        let settings = settings();
        let names = ["a", "a/b", "a-b", "a.b", "a~", "A", "0", "z", "@", "a/b/c"];
        let numbered = (0..60).map(|number| name(&format!("n{number}")));
        let expected: BTreeSet<_> = names.map(name).into_iter().chain(numbered).collect();
        for name in &expected {
            rig.append(name, &settings, "x");
        }
        for count_max in [1, 7, 69, 70, 71] {
            let listed = all_pages(rig, count_max);
            assert_eq!(listed.len(), expected.len());
            assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }

    pub fn a_list_goes_on_after_a_box_that_is_gone(rig: &mut Rig) {
        let settings = settings();
        for text in ["a", "b", "c", "d"] {
            rig.append(&name(text), &settings, "x");
        }
        let page = rig.list(SET, None, 2);
        assert!(rig.remove(&page[1].name));
        let rest = rig.list(SET, Some(&page[1].name), 10);
        let names: BTreeSet<_> = rest.into_iter().map(|summary| summary.name).collect();
        assert!(names.len() == 2 && !names.contains(&page[0].name));
    }
}
