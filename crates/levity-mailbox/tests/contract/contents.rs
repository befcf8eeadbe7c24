//! Messages come back as they were given.

use crate::harness::for_every_store;

for_every_store! {
    every_byte,
    an_empty_content,
    the_largest_content,
    all_fields,
    names_of_all_characters,
}

mod cases {
    use std::time::{Duration, UNIX_EPOCH};

    use levity_mailbox::{Draft, Message};

    use crate::harness::*;

    /// Appends a message, and checks that all ways to get it, also after a reopening, have the same.
    fn round_trip(rig: &mut Rig, draft: impl Fn() -> Draft) {
        let (a, settings) = (name("a"), settings());
        let is_same = |message: &Message| {
            let (one, other) = (&*message.draft, draft());
            assert!(one.content == other.content, "another content");
            assert_eq!((&one.key, &one.event), (&other.key, &other.event));
            assert_eq!(one.media_type, other.media_type);
            assert_eq!(one.deadline, other.deadline);
        };
        let (id, _) = rig.append_as(&a, &settings, draft());
        let opened = rig.open(&a, &settings);
        let looked = rig.look(&a).expect("a box");
        for message in opened.messages.iter().chain(&looked.messages) {
            is_same(message);
            assert_eq!(message.id, id);
        }
        assert_eq!((opened.messages.len(), looked.messages.len()), (1, 1));
        if rig.is_persistent() {
            rig.reopen();
            let opened = rig.open(&a, &settings);
            assert_eq!(opened.messages.len(), 1);
            is_same(&opened.messages[0]);
            assert_eq!(opened.messages[0].id, id);
        }
    }

    fn with_content(content: impl Into<Box<[u8]>>) -> Draft {
        Draft {
            content: content.into(),
            ..draft("")
        }
    }

    pub fn every_byte(rig: &mut Rig) {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        round_trip(rig, || with_content(all.clone()));
    }

    pub fn an_empty_content(rig: &mut Rig) {
        round_trip(rig, || with_content([]));
    }

    pub fn the_largest_content(rig: &mut Rig) {
        let byte = |at: usize| (at ^ (at >> 8) ^ (at >> 16)) as u8;
        let content: Vec<u8> = (0..1 << 20).map(byte).collect();
        round_trip(rig, || with_content(content.clone()));
    }

    pub fn all_fields(rig: &mut Rig) {
        let seconds = rig.now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let deadline = UNIX_EPOCH + Duration::from_millis((seconds + 3600) * 1000 + 123);
        round_trip(rig, || Draft {
            key: Some("!\"#$%&'()*+-./:;<=>?@[\\]^_`{|}~".into()),
            event: "über, alles: \"x\"".into(),
            media_type: "application/json; charset=\"utf-8\"".into(),
            content: b"\0\r\n".as_slice().into(),
            deadline: Some(deadline),
            reservation: None,
            is_damaged: false,
        });
    }

    pub fn names_of_all_characters(rig: &mut Rig) {
        let settings = settings();
        let longest = "n".repeat(200);
        let names = ["-._~:@+=/0aZ", &longest, "A", "a", "a/b", "a.b", "a..b"];
        for text in names {
            rig.append(&name(text), &settings, text);
        }
        for text in names {
            assert_eq!(rig.texts(&name(text), &settings), [text.to_string()]);
        }
    }
}
