//! Durable Streams under cuts: producers whose retries are recognised, and readers that come back with their offsets. None of these
//! cuts takes what was acknowledged, so each reader has to get all of it, once and in order.

use std::sync::atomic::Ordering;

use levity_wire::mailbox::MessageId;
use serde_json::Value;

use super::super::KEY;
use super::check::{Acknowledged, Message};
use super::clients::{END, EndInPanic, PUBLISHERS, Random, World, dechunked};
use super::servers::Rig;
use super::{BETWEEN_MAX, Cut, OF_DISK, in_rounds, while_used};

const OF_REDIS: [Cut; 5] = [
    Cut::Kill,
    Cut::Restart,
    Cut::Reload,
    Cut::RestartRedis,
    Cut::FailOver,
];

/// Lets cuts happen while producers append to a stream, and checks what readers have got, and what a fork has inherited.
fn run_round(rig: &mut Rig, round: usize, cuts: &[Cut], random: &mut Random) -> [usize; 4] {
    let world = rig.world_of_stream(round);
    let path = &world.path;
    rig.write("PUT", path, &[("Content-Type", "text/plain")], 201);
    let fork = format!("{path}-fork");
    let cut_all = |own: &mut Random| {
        for (number, cut) in cuts.iter().enumerate() {
            world.wait_for(own.below(BETWEEN_MAX));
            if number == cuts.len() / 2 {
                rig.write("PUT", &fork, &[("Stream-Forked-From", path)], 201);
            }
            rig.cut(*cut, &world, own);
        }
    };
    let end = |own: &mut Random| world.append(PUBLISHERS, 0, END, own);
    let (append, read) = (World::append_all, World::read_all);
    let read = while_used(&world, random, append, read, cut_all, end);
    let kept = rig.content(path);
    for content in &read {
        assert_eq!(content, &kept, "what a reader has");
    }
    let acknowledged = world.acknowledged.lock().expect("nobody failed");
    for producer in 0..PUBLISHERS {
        let start = format!("{producer}-");
        let of_stream: Vec<_> = kept
            .split_terminator(' ')
            .filter(|text| text.starts_with(&start))
            .collect();
        let expected: Vec<_> = (0..of_stream.len())
            .map(|number| format!("{producer}-{number}"))
            .collect();
        assert_eq!(of_stream, expected);
        let is_of = |it: &&Acknowledged| it.message.text.starts_with(&start);
        assert_eq!(of_stream.len(), acknowledged.iter().filter(is_of).count());
    }
    let inherited = rig.content(&fork);
    assert!(kept.starts_with(&inherited), "{inherited}");
    let [refused, connections] =
        [&world.refused, &world.connections].map(|it| it.load(Ordering::Relaxed));
    [acknowledged.len(), connections, refused, 0]
}

impl World {
    /// Appends texts one after the other, each until it is acknowledged.
    fn append_all(&self, producer: usize, random: &mut Random) {
        let _guard = EndInPanic(self);
        for number in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            self.append(producer, number, &format!("{producer}-{number}"), random);
        }
    }

    fn append(&self, producer: usize, number: usize, text: &str, random: &mut Random) {
        let (epoch, sequence) = (producer as u64, number as u64);
        self.until_acknowledged(|| {
            let headers = format!(
                "Content-Type: text/plain\r\nProducer-Id: {producer}\r\nProducer-Epoch: 0\r\nProducer-Seq: {number}\r\n"
            );
            let (status, answer) = self.request(&headers, &format!("{text} "), random)?;
            assert!(["200", "204"].contains(&&*status), "{answer}");
            Some(Message::new(MessageId { epoch, sequence }, text))
        });
    }

    /// Reads until the last text has come.
    fn read_all(&self, random: &mut Random) -> String {
        let _guard = EndInPanic(self);
        let (mut content, mut offset) = (String::new(), "-1".to_owned());
        while !content.ends_with(&format!("{END} ")) {
            let Some(mut conn) = self.connect(random) else {
                continue;
            };
            let request = format!(
                "GET {}?offset={offset}&live=sse HTTP/1.1\r\nHost: a\r\n\r\n",
                self.path
            );
            if conn.send(request.as_bytes()).is_none() {
                continue;
            }
            let bytes = self.receive_stream(&mut conn, |body| {
                body.contains(END) && body.ends_with("}\n\n")
            });
            let body = dechunked(&bytes);
            // What comes without the offset after it is read again.
            let mut data = String::new();
            for event in body
                .split_inclusive("\n\n")
                .filter(|it| it.ends_with("\n\n"))
            {
                let Some((kind, text)) = event.trim_end_matches('\n').split_once("\ndata:") else {
                    continue;
                };
                match kind {
                    "event: data" => data.push_str(text),
                    _ => {
                        let control: Value = serde_json::from_str(text).expect("JSON");
                        let next = control["streamNextOffset"].as_str();
                        next.expect("an offset").clone_into(&mut offset);
                        content.push_str(&std::mem::take(&mut data));
                    }
                }
            }
        }
        content
    }
}

impl Rig {
    fn write(&self, method: &str, path: &str, headers: &[(&str, &str)], status: u16) {
        let authorization = format!("Bearer {KEY}");
        let own = [("Authorization", &*authorization), ("Content-Length", "0")];
        let headers = [headers, &own].concat();
        let answer = self.any().client().request(method, path, &headers);
        answer.assert_status(status);
    }

    /// All that a stream has.
    fn content(&self, path: &str) -> String {
        let (mut content, mut offset) = (String::new(), "-1".to_owned());
        loop {
            let page = self.any().get(&format!("{path}?offset={offset}"));
            page.assert_status(200);
            content.push_str(&String::from_utf8_lossy(&page.body));
            page.field("stream-next-offset").clone_into(&mut offset);
            if page.header("stream-up-to-date").is_some() {
                return content;
            }
        }
    }
}

#[test]
fn streams_lose_nothing_on_a_disk_that_fails() {
    in_rounds(Rig::disk(), &OF_DISK, 10, run_round);
}

#[test]
fn streams_lose_nothing_on_redis() {
    in_rounds(Rig::redis(), &OF_REDIS, 10, run_round);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --full`"]
fn streams_lose_nothing_on_a_disk_under_a_thousand_cuts() {
    in_rounds(Rig::disk(), &OF_DISK, 1000, run_round);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --full`"]
fn streams_lose_nothing_on_redis_under_a_thousand_cuts() {
    in_rounds(Rig::redis(), &OF_REDIS, 1000, run_round);
}
