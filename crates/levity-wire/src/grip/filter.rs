//! Filters: which messages of a channel a client that is held does not get.

use serde_json::{Map, Value};

use super::json::{object, take, text};
use super::{META_BYTES_MAX, box_name};
use crate::Reject;

const NO_FILTER: &str = "GRIP: no such filter";
const BAD_FILTERS: Reject = Reject::bad("GRIP: `filters` is no list of texts");
const LONG_META: Reject = Reject::bad("GRIP: meta data of more than 4 KiB");
const BAD_META: &str = "GRIP: meta data that is no text";

/// The filters of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filters {
    /// `skip-self`: the client does not get what [its user](super::Instruct::user) has sent.
    pub skip_self: bool,
    /// `skip-users`: the client does not get what is not for its user.
    pub skip_users: bool,
    /// `require-sub`: the client gets messages that name a channel only if it listens to that one, too.
    pub require_sub: bool,
}

impl Filters {
    pub(super) fn add(&mut self, name: &[u8]) -> Result<(), Reject> {
        let refuse = |reason| Err(Reject::bad(reason));
        let filter = match name {
            b"skip-self" => &mut self.skip_self,
            b"skip-users" => &mut self.skip_users,
            b"require-sub" => &mut self.require_sub,
            // Pushpin has these, too.
            b"build-id" => return refuse("GRIP: the filter `build-id` is not supported"),
            b"var-subst" => return refuse("GRIP: the filter `var-subst` is not supported"),
            b"http-check" => return refuse("GRIP: the filter `http-check` is not supported"),
            b"http-modify" => return refuse("GRIP: the filter `http-modify` is not supported"),
            _ => return refuse(NO_FILTER),
        };
        *filter = true;
        Ok(())
    }

    /// Adds those of a list.
    pub(super) fn add_all(&mut self, names: Value) -> Result<(), Reject> {
        let names: Vec<String> = serde_json::from_value(names).map_err(|_| BAD_FILTERS)?;
        let mut names = names.iter();
        names.try_for_each(|name| self.add(name.as_bytes()))
    }

    /// Adds those of `other`.
    pub(super) fn merge(&mut self, other: Self) {
        self.skip_self |= other.skip_self;
        self.skip_users |= other.skip_users;
        self.require_sub |= other.require_sub;
    }

    /// Whether a client does not get a message. It is of `user`, or of nobody if that is empty, and listens to the boxes for
    /// which `listens` is true.
    pub fn drop(self, meta: &Meta, user: &str, listens: impl Fn(&str) -> bool) -> bool {
        let is_user = |name: &str| !user.is_empty() && name == user;
        let mut skipped = meta.skip_users.split(',').map(str::trim);
        self.skip_self && is_user(&meta.sender)
            || self.skip_users && skipped.any(is_user)
            || self.require_sub && !meta.require_sub.is_empty() && !listens(&meta.require_sub)
    }
}

/// What filters look at of a message. A text is empty if the message has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// The user who has sent it.
    pub sender: String,
    /// The users whom it is not for, with commas between them.
    pub skip_users: String,
    /// The name of the box of a channel to which a client has to listen.
    pub require_sub: String,
}

impl Meta {
    /// Takes the member `meta` of an item. What no filter looks at is ignored.
    pub(super) fn of_item(item: &mut Map<String, Value>) -> Result<Self, Reject> {
        let Some(meta) = take(item, "meta") else {
            return Ok(Self::default());
        };
        let mut meta = object(meta)?;
        let channel = value(&mut meta, "require_sub")?;
        Ok(Self {
            sender: value(&mut meta, "sender")?,
            skip_users: value(&mut meta, "skip_users")?,
            require_sub: match channel.is_empty() {
                true => channel,
                false => box_name(channel.as_bytes())?,
            },
        })
    }
}

/// A text of meta data; empty if there is none.
pub(super) fn value(meta: &mut Map<String, Value>, name: &str) -> Result<String, Reject> {
    checked(text(meta, name, BAD_META)?.unwrap_or_default())
}

/// Meta data of an acceptable length.
pub(super) fn checked(value: String) -> Result<String, Reject> {
    match value.len() > META_BYTES_MAX {
        true => Err(LONG_META),
        false => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(names: &[&str]) -> Filters {
        let mut filters = Filters::default();
        for name in names {
            filters.add(name.as_bytes()).expect(name);
        }
        filters
    }

    fn meta(sender: &str, skip_users: &str, require_sub: &str) -> Meta {
        Meta {
            sender: sender.to_owned(),
            skip_users: skip_users.to_owned(),
            require_sub: require_sub.to_owned(),
        }
    }

    #[test]
    fn messages_are_dropped_as_pushpin_does() {
        let all = ["skip-self", "skip-users", "require-sub"];
        for (filter, meta, user, is_dropped) in [
            ("skip-self", meta("a", "", ""), "a", true),
            ("skip-self", meta("a", "", ""), "b", false),
            ("skip-self", meta("", "", ""), "", false),
            ("skip-self", meta("b", "a", "x"), "a", false),
            ("skip-users", meta("", "b, a ,c", ""), "a", true),
            ("skip-users", meta("", "ab,c", ""), "a", false),
            ("skip-users", meta("", "b,,c", ""), "", false),
            ("skip-users", meta("a", "", "x"), "a", false),
            ("require-sub", meta("", "", "x"), "a", true),
            ("require-sub", meta("", "", "own"), "", false),
            ("require-sub", meta("", "", ""), "", false),
            ("require-sub", meta("a", "a", ""), "a", false),
        ] {
            let listens = |name: &str| name == "own";
            assert_eq!(filters(&[filter]).drop(&meta, user, listens), is_dropped);
            assert!(!Filters::default().drop(&meta, user, listens));
            let has_all = filters(&all).drop(&meta, user, listens);
            assert!(has_all || !is_dropped);
        }
    }

    #[test]
    fn no_part_of_a_name_is_a_filter() {
        for name in ["skip-self", "skip-users", "require-sub"] {
            for end in 0..name.len() {
                let added = Filters::default().add(&name.as_bytes()[..end]);
                assert_eq!(added, Err(Reject::bad(NO_FILTER)));
            }
            assert!(filters(&[name]) != Filters::default());
        }
        for name in ["build-id", "var-subst", "http-check", "http-modify"] {
            let added = Filters::default().add(name.as_bytes());
            assert!(added.is_err_and(|reject| reject.reason.contains(name)));
        }
        for names in ["1", "{}", "[1]", r#"["x"]"#, r#"[["skip-self"]]"#] {
            let names = serde_json::from_str(names).expect("JSON");
            assert!(Filters::default().add_all(names).is_err());
        }
    }

    #[test]
    fn meta_data_of_items() {
        let of_item = |item: &str| {
            let Ok(Value::Object(mut item)) = serde_json::from_str(item) else {
                panic!("{item}");
            };
            Meta::of_item(&mut item)
        };
        assert_eq!(of_item(r#"{"meta":null}"#), Ok(Meta::default()));
        assert_eq!(
            of_item(r#"{"meta":{"sender":"a","skip_users":"b","require_sub":"c d","x":1}}"#),
            Ok(meta("a", "b", "c=20d"))
        );
        for item in [
            r#"{"meta":[]}"#,
            r#"{"meta":{"sender":1}}"#,
            r#"{"meta":{"skip_users":["a"]}}"#,
            r#"{"meta":{"require_sub":["a"]}}"#,
        ] {
            assert!(of_item(item).is_err(), "{item}");
        }
        let long = |bytes: usize| {
            of_item(&format!(
                r#"{{"meta":{{"sender":"{}"}}}}"#,
                "x".repeat(bytes)
            ))
        };
        assert!(long(META_BYTES_MAX).is_ok());
        assert_eq!(long(META_BYTES_MAX + 1), Err(LONG_META));
    }
}
