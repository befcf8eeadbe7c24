//! Reads `[[mailbox]]`, and how sites and routes use one.

use std::collections::HashSet;

use levity_wire::jwt::SECRET_BYTES_MIN;

use super::{Mailbox, MailboxProtocol, MailboxStore, StoreKind};
use crate::address::Address;
use crate::gates::Gates;
use crate::limits::Limits;
use crate::model::{Answer, Listen, Location, Route, Site};
use crate::named::{NameForm, Named};
use crate::origins;
use crate::reader::Reader;
use crate::section::Section;

const NAME: NameForm = NameForm {
    others: b"-_",
    bytes_max: 64,
    help: "1 to 64 letters, digits, `-` and `_`",
};

/// The sets of mailboxes of a file, for the keys that name them.
pub(crate) struct Mailboxes {
    names: Named,
    /// In the order of the file.
    pub(crate) all: Vec<Mailbox>,
}

impl Mailboxes {
    pub(crate) fn read(root: &Section<'_>, store: &MailboxStore, limits: &Limits) -> Self {
        let mut names = Named::new("a mailbox");
        let tables = root.children("mailbox");
        let set = |section| {
            let set = mailbox(section, &mut names);
            check_place(section, &set, store, limits);
            set
        };
        let all = tables.iter().map(set).collect();
        Mailboxes { names, all }
    }

    /// Notes sets to which no site or route refers.
    pub(crate) fn note_unused(&self, reader: &Reader<'_>) {
        self.names.note_unused(reader);
    }

    /// Notes sets to which nobody can publish, and listeners for publishers that proxies may use, too.
    pub(crate) fn note_publishers(&self, root: &Section<'_>, listen: &[Listen], sites: &[Site]) {
        if !listen.iter().any(|listen| listen.publish) {
            self.note_unpublished(root, sites);
        }
        self.note_useless_keys(root, sites);
        let tables = root.glance("listen", "publish");
        for (listen, (span, _)) in listen.iter().zip(&tables) {
            let mut others = sites
                .iter()
                .filter(|site| serves_more(site, &listen.address));
            if let Some(site) = others.next().filter(|_| listen.publish) {
                let note = format!(
                    "`publish`: the site `{}` serves more than mailboxes here: a proxy for it that runs as the user of the \
                     server, or as root, needs a `[[listen]]` of its own, or all its clients can publish",
                    site.name()
                );
                root.reader.note(span, note);
            }
        }
    }

    /// Notes sets that clients get to, and to which neither clients nor applications can publish: no listener is for publishers.
    fn note_unpublished(&self, root: &Section<'_>, sites: &[Site]) {
        let (mut offered, mut of_applications) = (HashSet::new(), HashSet::new());
        for location in sites.iter().flat_map(Site::locations) {
            of_applications.extend(location.mailbox_headers);
            if let Some(Answer::Mailbox(number)) = location.answer {
                offered.insert(number);
            }
        }
        let tables = root.glance("mailbox", "name");
        for (number, (set, (span, _))) in self.all.iter().zip(&tables).enumerate() {
            let is_open = set.publish_key.is_some() || set.claim.is_some();
            if !is_open && offered.contains(&number) && !of_applications.contains(&number) {
                let note = format!(
                    "nobody can publish to the mailbox `{}`: give it a `publish_key_file`, or add `[[listen]]` with `address = \
                     \"unix:/run/levity/publish.sock\"` and `publish = true` for processes of the user of the server and of root",
                    set.name
                );
                root.reader.note(span, note);
            }
        }
    }

    /// Notes sets whose key nobody can send: with `claim`, the `jwt` of each site and route takes the bearer token for its own.
    fn note_useless_keys(&self, root: &Section<'_>, sites: &[Site]) {
        let tables = root.glance("mailbox", "publish_key_file");
        for (number, (set, (span, _))) in self.all.iter().zip(&tables).enumerate() {
            let is_here = |location: &&Location| {
                let answer = &location.answer;
                matches!(answer, Some(Answer::Mailbox(one)) if *one == number)
            };
            let all = sites.iter().flat_map(Site::locations);
            let here: Vec<_> = all.filter(is_here).collect();
            let is_useless = here.iter().all(|location| location.gates.jwt.is_some());
            let has_both = set.publish_key.is_some() && set.claim.is_some();
            if has_both && !here.is_empty() && is_useless {
                let note = format!(
                    "`publish_key_file`: nobody can send the key of the mailbox `{}`: with `claim`, its sites and routes have a \
                     `jwt`, which refuses the key; give publishers a token whose `{}` has `{{\"publish\": [\"*\"]}}`",
                    set.name,
                    set.claim.as_deref().unwrap_or_default()
                );
                root.reader.note(span, note);
            }
        }
    }

    /// The number of the set that `key` of a site or route names. Reports an unknown name.
    pub(crate) fn named_by(&self, section: &Section<'_>, key: &str) -> Option<usize> {
        let name = section.text(key)?;
        self.names.find(section.reader, &name, None)
    }

    /// The number of the set that `mailbox_headers` of a table names; `above` is that of the table around it.
    pub(crate) fn of_headers(&self, section: &Section<'_>, above: Option<usize>) -> Option<usize> {
        const KEY: &str = "mailbox_headers";
        match section.has(KEY) {
            true => self.named_by(section, KEY).filter(|&number| {
                let is_boxes = self.all[number].protocol == MailboxProtocol::Mailbox;
                if !is_boxes {
                    let message = "clients of durable streams are not held by an application";
                    section.report(KEY, message, None);
                }
                is_boxes
            }),
            false => above,
        }
    }

    /// Reports a set where nobody could use it, and notes who may.
    pub(crate) fn check(&self, section: &Section<'_>, location: &Location) {
        const KEY: &str = "mailbox";
        let is_own = section.has(KEY);
        let Some(Answer::Mailbox(number)) = location.answer else {
            return;
        };
        if is_own && location.internal {
            return section.report(KEY, "clients do not get to internal routes", None);
        }
        let set = &self.all[number];
        let is_off = section.is_off("jwt");
        // A table `jwt` that is wrong has been reported.
        let lacks_jwt = location.gates.jwt.is_none() && (is_off || !section.has("jwt"));
        if set.claim.is_some() && lacks_jwt && (is_own || is_off) {
            let at = if is_own { KEY } else { "jwt" };
            let message = format_args!("`claim` of the mailbox `{}` needs a `jwt` here", set.name);
            section.report(at, message, None);
        } else if is_own && location.gates == Gates::default() {
            let note = "everyone who can connect and knows the name of a box may receive its messages: let the names be unguessable, \
                        or add `jwt` or another gate";
            section.reader.note(&section.span_of(KEY), note.to_owned());
        }
    }
}

/// Whether clients that connect to `address` get files or an application of `site`, too.
fn serves_more(site: &Site, address: &Address) -> bool {
    let is_at = |route: &&Route| {
        let mut when = route.matchers.iter().map(|matcher| &matcher.when.listen);
        when.all(|listen| listen.is_empty() || listen.contains(address))
    };
    let routes = site.routes.iter().filter(is_at);
    let mut locations = routes.map(|route| &route.location).chain([&site.location]);
    locations.any(|location| {
        let has_more = location.root.is_some() || location.proxying.proxy.is_some();
        location.answer.is_none() && (has_more || location.upload.is_some())
    })
}

/// Reports what the place for messages cannot do.
fn check_place(section: &Section<'_>, set: &Mailbox, store: &MailboxStore, limits: &Limits) {
    if set.durable && store.kind == StoreKind::Memory {
        let help = "add `[mailbox_store]` with `store = \"disk\"`".to_owned();
        section.report("durable", "messages are kept in memory only", Some(help));
    }
    if set.message_bytes > limits.mailbox_memory {
        let message = "`limits.mailbox_memory` has no room for such a message";
        section.report("message_bytes", message, None);
    }
}

fn mailbox(section: &Section<'_>, names: &mut Named) -> Mailbox {
    section.at_most("message_bytes", "bytes");
    let claim = section.text("claim");
    if let Some(given) = claim.as_ref().filter(|given| given.text.is_empty()) {
        given.refuse("`claim`: it is empty");
    }
    if section.is_empty_array("origins") {
        let help = "leave it out for pages of the host itself; `[\"*\"]` permits every page";
        section.report("origins", "it is empty", Some(help.to_owned()));
    }
    Mailbox {
        name: names.add(section, &NAME),
        mode: section.word_or_default("mode"),
        message_bytes: section.count("message_bytes"),
        messages: section.count("messages"),
        bytes: section.count("bytes"),
        lifetime: section
            .has("lifetime")
            .then(|| section.duration("lifetime")),
        idle: section.duration("idle"),
        boxes: section.count("boxes"),
        receivers: section.count("receivers"),
        receivers_per_client: section.count("receivers_per_client"),
        publishes_per_second: section.count("publishes_per_second"),
        durable: section.boolean_or_default("durable"),
        heartbeat: section.duration("heartbeat"),
        retry: section.duration("retry"),
        rotate: section.duration("rotate"),
        publish_key: section.secret_of("publish_key", SECRET_BYTES_MIN),
        grip_key: section.secret_of("grip_key", SECRET_BYTES_MIN),
        unread: section.reader.take_unread(),
        origins: origins::read(section),
        claim: claim.map(|given| given.text.to_owned()),
        protocol: section.word_or_default("protocol"),
    }
}
