//! The numbers that may only fall: `xtask/instructions.json`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::measure::Measurement;
use crate::files;
use crate::run::{self, Result};

/// By how much a number may exceed the record.
const TOLERANCE_PERCENT: u64 = 1;

/// How many functions a complaint names.
const NAMED: usize = 10;

/// For each case its number, its functions, and the compiler of the program that was counted.
#[derive(Debug, Default)]
pub struct Record(Map<String, Value>);

impl Record {
    /// # Errors
    /// If the file is no object of JSON.
    pub fn read() -> Result<Self> {
        let path = path();
        let record = serde_json::from_str(&files::read(&path)?);
        record
            .map(Self)
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self) -> Result<()> {
        let path = path();
        let text = serde_json::to_string_pretty(&self.0).map_err(|error| error.to_string())?;
        fs::write(&path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }

    /// What is wrong with a measurement of a program that `compiler` has built.
    pub fn check(&self, measurement: &Measurement, compiler: &str) -> Option<String> {
        uneven(measurement).or_else(|| self.increase(measurement, compiler))
    }

    fn increase(&self, measurement: &Measurement, compiler: &str) -> Option<String> {
        let name = measurement.case.name;
        let Some(recorded) = self.0.get(name) else {
            return Some(format!("{name}: no number is recorded"));
        };
        if recorded["compiler"] != compiler {
            let other = recorded["compiler"].as_str().unwrap_or("none");
            println!(
                "{name}: not compared, because the number is that of rustc {other}, and not of {compiler}"
            );
            return None;
        }
        let (number, now) = (instructions(recorded), measurement.median());
        exceeds(now, number).then(|| {
            let grown = grown(measurement, &recorded["functions"]);
            format!("{name}: {now} instructions for one response, and {number} are recorded. These functions have grown most:\n{grown}")
        })
    }

    /// Takes a measurement in. Returns what is wrong with it.
    pub fn take(&mut self, measurement: &Measurement, compiler: &str) -> Option<String> {
        let (name, now) = (measurement.case.name, measurement.median());
        if let Some(recorded) = self.0.get(name)
            && recorded["compiler"] == compiler
            && now > instructions(recorded)
        {
            let number = instructions(recorded);
            return Some(format!(
                "{name}: {now} instructions are more than the {number} that are recorded. \
                 Remove the case from {} if that has to be",
                path().display()
            ));
        }
        let functions = measurement.functions.iter();
        let functions = functions.map(|(name, count)| (name.clone(), count.round() as u64));
        let functions: Map<_, _> = functions
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name, count.into()))
            .collect();
        let entry = json!({ "compiler": compiler, "instructions": now, "functions": functions });
        self.0.insert(name.to_owned(), entry);
        None
    }
}

fn path() -> PathBuf {
    run::root().join("xtask/instructions.json")
}

fn instructions(recorded: &Value) -> u64 {
    recorded["instructions"].as_u64().unwrap_or_default()
}

fn exceeds(number: u64, limit: u64) -> bool {
    number * 100 > limit * (100 + TOLERANCE_PERCENT)
}

/// Whether responses cost more at the end of a connection than at its beginning, or the reverse.
fn uneven(measurement: &Measurement) -> Option<String> {
    let medians = measurement.medians();
    let (least, most) = (*medians.iter().min()?, *medians.iter().max()?);
    exceeds(most, least).then(|| {
        let name = measurement.case.name;
        format!("{name}: responses of one connection do not cost the same: {least} to {most} instructions")
    })
}

/// The functions that have grown most, each on a line.
fn grown(measurement: &Measurement, recorded: &Value) -> String {
    let growth = measurement.functions.iter().map(|(name, count)| {
        let before = recorded[name].as_u64().unwrap_or_default();
        (count - before as f64, name)
    });
    let mut growth: Vec<_> = growth.filter(|(more, _)| *more >= 1.0).collect();
    growth.sort_by(|one, other| other.0.total_cmp(&one.0));
    let lines = growth.iter().take(NAMED);
    let lines: Vec<_> = lines
        .map(|(more, name)| format!("{more:+9.1}  {name}"))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::measure::{CASES, Case};
    use super::*;

    const COMPILER: &str = "1.95.0";

    fn case(name: &str) -> &'static Case {
        CASES.iter().find(|case| case.name == name).unwrap()
    }

    fn measured(name: &str, instructions: &[u64]) -> Measurement {
        let functions = [("parse", 900.4), ("send", 100.0)];
        Measurement {
            case: case(name),
            instructions: instructions.iter().map(|&number| vec![number]).collect(),
            functions: functions
                .map(|(name, count)| (name.to_owned(), count))
                .to_vec(),
        }
    }

    fn record() -> Record {
        let entry = json!({ "compiler": COMPILER, "instructions": 1000, "functions": { "parse": 850, "send": 100 } });
        Record(Map::from_iter([("http1".to_owned(), entry)]))
    }

    #[test]
    fn the_record_can_be_read() {
        let record = Record::read().unwrap();
        for case in CASES {
            let recorded = &record.0[case.name];
            assert!(instructions(recorded) > 0 && recorded["compiler"].is_string());
        }
    }

    #[test]
    fn a_number_may_exceed_the_record_by_a_hundredth() {
        let check = |number| record().check(&measured("http1", &[number]), COMPILER);
        assert_eq!(check(1010), None);
        let complaint = check(1011).unwrap();
        assert!(
            complaint.contains("1011") && complaint.contains("+50.4  parse"),
            "{complaint}"
        );
        assert!(!complaint.contains("send"), "{complaint}");
    }

    #[test]
    fn other_compilers_are_not_compared() {
        assert_eq!(record().check(&measured("http1", &[2000]), "1.96.0"), None);
        let complaint = record().check(&measured("http2", &[1]), COMPILER);
        assert!(complaint.unwrap().contains("no number is recorded"));
    }

    #[test]
    fn what_has_to_be_even_is() {
        let check = |last| record().check(&measured("pipelined", &[1000, last]), "1.96.0");
        assert!(check(1011).unwrap().contains("do not cost the same"));
        assert_eq!(uneven(&measured("pipelined", &[1000, 1010])), None);
    }

    #[test]
    fn a_record_only_falls() {
        let mut record = record();
        let complaint = record.take(&measured("http1", &[1001]), COMPILER);
        assert!(complaint.unwrap().contains("Remove the case"));
        assert_eq!(instructions(&record.0["http1"]), 1000);
        assert_eq!(record.take(&measured("http1", &[999]), COMPILER), None);
        assert_eq!(instructions(&record.0["http1"]), 999);
        assert_eq!(record.0["http1"]["functions"]["parse"], 900);
        assert_eq!(record.take(&measured("http1", &[1200]), "1.96.0"), None);
        assert_eq!(instructions(&record.0["http1"]), 1200);
    }
}
