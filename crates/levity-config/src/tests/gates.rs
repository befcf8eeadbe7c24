//! Who may use a site or route.

use super::*;

fn networks(texts: &[&str]) -> AddressSet {
    let networks = texts.iter().map(|text| text.parse().expect(text));
    AddressSet {
        networks: networks.collect(),
        unix: false,
    }
}

#[test]
fn routes_inherit_each_list() {
    let text = format!(
        "{SITE}allow = [\"10.0.0.0/8\"]\ndeny = [\"10.9.0.0/16\"]\n\
         [[site.route]]\npath = \"/a/*\"\n\
         [[site.route.route]]\npath = \"/a/b\"\ndeny = []\n\
         [[site.route]]\npath = \"/c\"\nallow = [\"all\"]\n\
         [[site.route]]\npath = \"/d\"\nallow = [\"unix\"]\n"
    );
    let site = parse(&text).expect(&text).sites.remove(0);
    let of = |number: usize| &site.routes[number].location.gates;
    assert_eq!(site.location.gates.allow, Some(networks(&["10.0.0.0/8"])));
    assert_eq!(*of(1), site.location.gates);
    assert_eq!(of(0).allow, site.location.gates.allow);
    assert_eq!(of(0).deny, AddressSet::default());
    assert_eq!(
        (&of(2).allow, &of(2).deny),
        (&None, &networks(&["10.9.0.0/16"]))
    );
    assert!(
        of(3)
            .allow
            .as_ref()
            .is_some_and(|set| set.unix && set.networks.is_empty())
    );
}

#[test]
fn lists_that_cannot_be() {
    for (line, expected) in [
        ("allow = []", "`allow`: it names nobody"),
        (
            "allow = [\"10.0.0.1/8\"]",
            "`10.0.0.1/8` is no network [bits beyond",
        ),
        (
            "deny = [\"unix:/a\"]",
            "`unix:/a` is no network [\"unix\" stands for",
        ),
        (
            "deny = \"all\"",
            "expected an array of strings, found string [write [\"all\"]]",
        ),
        (
            "allow = [\"10.0.0.0/8\"]\ndeny = [\"all\"]",
            "`deny`: nobody would be let in [leave it out",
        ),
    ] {
        let problems = reports(&format!("{SITE}{line}\n"));
        assert_eq!(problems.len(), 1, "{line}: {problems:?}");
        assert!(problems[0].contains(expected), "{line}: {problems:?}");
    }
}
