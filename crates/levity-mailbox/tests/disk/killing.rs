//! A process that is killed while it appends.

use std::collections::HashMap;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use levity_mailbox::{Appended, MessageId, Name, Settings, Store as _};

use crate::harness::*;

/// The folder, in the process that is killed.
const FOLDER: &str = "LEVITY_TEST_FOLDER";

/// The number of messages in the first call of the process.
const FIRST: &str = "LEVITY_TEST_FIRST";

const KILLS: usize = 30;

const BOXES: usize = 7;

fn of_number(number: usize) -> (Name, Arc<Settings>) {
    let index = number % BOXES;
    let is_durable = index.is_multiple_of(2);
    let settings = settings_with(|settings| {
        settings.is_durable = is_durable;
        settings.messages_max = 1_000_000;
        settings.bytes_max = 1 << 30;
    });
    (name(&format!("box{index}")), settings)
}

/// Not a test: the process that is killed. It appends without end, several at a time, and tells what was acknowledged.
#[test]
#[ignore = "the process that another test kills"]
fn the_process_that_is_killed() {
    let Ok(folder) = env::var(FOLDER) else {
        return;
    };
    let mut number: usize = env::var(FIRST).unwrap().parse().unwrap();
    let mut rig = Rig::of(Path::new(&folder));
    rig.open_store();
    let mut out = std::io::stdout();
    loop {
        let calls: Vec<_> = (0..5)
            .map(|_| {
                let numbers = number..number + 3;
                number = numbers.end;
                let append = |number| {
                    let (name, settings) = of_number(number);
                    append_of(&name, &settings, draft(&format!("text {number}")))
                };
                let appends = numbers.clone().map(append).collect();
                (numbers, rig.store().append(appends, SystemTime::now()))
            })
            .collect();
        rig.store().sweep(SystemTime::now());
        for (numbers, appending) in calls {
            for (number, result) in numbers.zip(rig.finish(appending)) {
                let Ok(Appended::New { message, .. }) = result else {
                    panic!("{result:?}");
                };
                let MessageId { epoch, sequence } = message.id;
                // One call each, so that nothing is in a buffer.
                let line = format!("acknowledged {number} {epoch} {sequence}\n");
                out.write_all(line.as_bytes()).unwrap();
            }
        }
    }
}

fn start(folder: &Path, first: usize) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["killing::the_process_that_is_killed", "--exact"])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The number and the id of a line.
fn parse(line: &str) -> Option<(usize, MessageId)> {
    let mut words = line.split_once("acknowledged ")?.1.split(' ');
    let mut next = || words.next()?.parse::<u64>().ok();
    let (number, epoch, sequence) = (next()?, next()?, next()?);
    Some((number as usize, MessageId { epoch, sequence }))
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_kills() {
    let folder = folder();
    let mut acknowledged = HashMap::new();
    let mut first = 0;
    for kill in 0..KILLS {
        let mut child = start(folder.path(), first);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Another number of messages each time.
        let count = 1 + kill * 37 % 400;
        let mut taken = 0;
        let mut note = |line: &str| {
            if let Some((number, id)) = parse(line) {
                assert!(acknowledged.insert(number, id).is_none());
                first = first.max(number + 1);
                taken += 1;
            }
            taken
        };
        while note(&lines.next().expect("it goes on").unwrap()) < count {}
        child.kill().unwrap();
        for line in lines {
            note(&line.unwrap());
        }
        child.wait().unwrap();
        // What was not acknowledged may be there: its numbers are not used again.
        first += 1000;
    }
    let mut rig = Rig::of(folder.path());
    rig.open_store();
    assert!(rig.lines().is_empty(), "{:?}", rig.lines());
    let mut found = HashMap::new();
    for index in 0..BOXES {
        let (name, _) = of_number(index);
        for message in rig.look(&name).expect("a box").messages {
            let text = text(&message);
            let number: usize = text.strip_prefix("text ").unwrap().parse().unwrap();
            assert_eq!(number % BOXES, index);
            let before = found.insert(number, message.id);
            assert!(before.is_none(), "{number} is there twice");
        }
    }
    for (number, id) in &acknowledged {
        assert_eq!(found.get(number), Some(id), "message {number}");
    }
    eprintln!("{} acknowledged, {} found", acknowledged.len(), found.len());
}
