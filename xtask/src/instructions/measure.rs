//! The cases: which requests are counted.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, Protocol};
use super::count::{Beside, Counter};
use super::server::Server;
use super::symbols::Symbols;
use super::thread::Thread;
use crate::run::Result;

/// The least number of requests on the connection before the first one that counts.
const WARM_UP: u64 = 300;

/// The time-out of a response.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(60);

/// How often a client looks whether a server has answered that is not traced.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Requests for a hot file of 1 KB on one connection. The client sends the next ones when the server waits for events and none is left.
pub struct Case {
    pub name: &'static str,
    protocol: Protocol,
    /// Requests that are sent in one go.
    at_once: u64,
    /// Responses that are counted together, from the system call that writes the one before them to the one that writes the last.
    together: u64,
    /// Counts that follow each other.
    counts: u64,
    /// How often there are so many.
    stretches: u64,
    /// Responses between two stretches.
    between: u64,
}

/// A step takes 30 us of processor time in a virtual machine: a thousand responses in place of fifty would take four minutes.
pub const CASES: [Case; 3] = [
    Case {
        name: "http1",
        protocol: Protocol::Http1,
        at_once: 1,
        together: 1,
        counts: 25,
        stretches: 1,
        between: 0,
    },
    Case {
        name: "http2",
        protocol: Protocol::Http2,
        at_once: 32,
        together: 32,
        counts: 5,
        stretches: 1,
        between: 0,
    },
    // The first fifty of ten thousand, and the last ones.
    Case {
        name: "pipelined",
        protocol: Protocol::Http1,
        at_once: 10_000,
        together: 1,
        counts: 50,
        stretches: 2,
        between: 9900,
    },
];

/// What a case needs for one response.
pub struct Measurement {
    pub case: &'static Case,
    /// Of each count, stretch by stretch.
    pub instructions: Vec<Vec<u64>>,
    /// The functions of the median, the largest first, with fractions of an instruction.
    pub functions: Vec<(String, f64)>,
}

impl Case {
    /// Counts in a server that has just started.
    ///
    /// # Errors
    /// If the server does not answer, or cannot be traced.
    pub fn measure(&'static self, server: &Server, inlined: bool) -> Result<Measurement> {
        let client = Client::connect(server.address(), self.protocol)?;
        let mut exchange = Exchange::new(client, self.at_once);
        exchange.bring_into_memory()?;
        let (event_loop, others) = server.threads()?;
        let stop = |thread| Thread::stop(server.id(), thread);
        let event_loop = stop(event_loop)?.ok_or("the event loop has ended")?;
        // The others would ask the loop questions, by a clock that goes a thousand times as fast as that of the loop.
        let _others = others.into_iter().map(stop).collect::<Result<Vec<_>>>()?;
        let symbols = Symbols::read(server.id(), inlined)?;
        let mut counter = Counter::new(&event_loop, &symbols)?;
        exchange.run(&mut counter, WARM_UP.next_multiple_of(self.at_once))?;
        let mut stretches = Vec::new();
        for stretch in 0..self.stretches {
            if stretch > 0 {
                exchange.run(&mut counter, self.between)?;
            }
            let count = |_| exchange.count(&mut counter, self.together, &symbols);
            stretches.push((0..self.counts).map(count).collect::<Result<Vec<_>>>()?);
        }
        Ok(self.conclude(&stretches))
    }

    fn conclude(&'static self, stretches: &[Vec<Sample>]) -> Measurement {
        let numbers = |samples: &Vec<Sample>| samples.iter().map(Sample::instructions).collect();
        let mut samples: Vec<_> = stretches.iter().flatten().collect();
        samples.sort_by_key(|sample| sample.instructions());
        let median = samples[samples.len() / 2];
        let per_response = |(name, count): (&String, &u64)| {
            (name.clone(), *count as f64 / median.responses as f64)
        };
        let mut functions: Vec<_> = median.functions.iter().map(per_response).collect();
        functions.sort_by(|one, other| other.1.total_cmp(&one.1));
        Measurement {
            case: self,
            instructions: stretches.iter().map(numbers).collect(),
            functions,
        }
    }
}

/// One count.
struct Sample {
    responses: u64,
    total: u64,
    functions: BTreeMap<String, u64>,
}

impl Sample {
    /// For one response.
    fn instructions(&self) -> u64 {
        (self.total as f64 / self.responses as f64).round() as u64
    }
}

/// Requests and responses beside a server that is traced.
struct Exchange {
    client: Client,
    at_once: u64,
    /// The number of responses at which a count ends.
    end: u64,
    deadline: Instant,
}

impl Exchange {
    fn new(client: Client, at_once: u64) -> Self {
        Self {
            client,
            at_once,
            end: 0,
            deadline: Instant::now(),
        }
    }

    /// Requests the file from a server that is not traced, and may need all its threads for that.
    fn bring_into_memory(&mut self) -> Result<()> {
        self.expect(self.at_once);
        self.client.request(self.at_once);
        while !self.after_call()? {
            thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Lets the server answer `responses` requests.
    fn run(&mut self, counter: &mut Counter<'_>, responses: u64) -> Result<()> {
        self.expect(responses);
        counter.run(self)
    }

    /// The same, and counts the instructions.
    fn count(
        &mut self,
        counter: &mut Counter<'_>,
        responses: u64,
        symbols: &Symbols,
    ) -> Result<Sample> {
        let before = self.client.answered();
        self.expect(responses);
        let counts = counter.count(self)?;
        Ok(Sample {
            // One system call may write several responses.
            responses: self.client.answered() - before,
            total: counts.total(),
            functions: counts.functions(symbols),
        })
    }

    fn expect(&mut self, responses: u64) {
        self.end = self.client.answered() + responses;
        self.deadline = Instant::now() + RESPONSE_TIME_MAX;
    }
}

impl Beside for Exchange {
    fn before_call(&mut self, waits: bool) -> Result<()> {
        if waits && self.client.is_idle() {
            self.client.request(self.at_once);
        }
        self.client.turn()
    }

    fn after_call(&mut self) -> Result<bool> {
        let before = self.client.answered();
        self.client.turn()?;
        if self.client.answered() > before {
            self.deadline = Instant::now() + RESPONSE_TIME_MAX;
        } else if Instant::now() > self.deadline {
            let seconds = RESPONSE_TIME_MAX.as_secs();
            return Err(format!("no response within {seconds} s"));
        }
        Ok(self.client.answered() >= self.end)
    }
}

impl Measurement {
    /// The median of all counts. Of an even number of them, it is the larger of the two in the middle.
    pub fn median(&self) -> u64 {
        median(self.instructions.concat())
    }

    /// The median of each stretch.
    pub fn medians(&self) -> Vec<u64> {
        self.instructions.iter().cloned().map(median).collect()
    }

    /// The figures, and a line for each of so many functions.
    pub fn table(&self, functions: usize) -> String {
        let mut table = format!(
            "{}: {} instructions for one response\n",
            self.case.name,
            self.median()
        );
        for counts in &self.instructions {
            let (least, most) = (counts.iter().min(), counts.iter().max());
            let [least, most] = [least, most].map(|number| number.copied().unwrap_or_default());
            let (number, median) = (counts.len(), median(counts.clone()));
            line(
                &mut table,
                format_args!("{number} counts: median {median}, least {least}, most {most}"),
            );
        }
        let all: f64 = self.functions.iter().map(|(_, count)| count).sum();
        let mut row = |count: f64, name: &str| {
            line(
                &mut table,
                format_args!("{count:9.1} {:5.1} %  {name}", count / all * 100.0),
            );
        };
        let (shown, others) = self.functions.split_at(functions.min(self.functions.len()));
        shown.iter().for_each(|(name, count)| row(*count, name));
        row(others.iter().map(|(_, count)| count).sum(), "(all others)");
        table
    }
}

fn line(text: &mut String, arguments: fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("text takes all");
}

fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_are_those_of_the_median() {
        let sample = |total| Sample {
            responses: 2,
            total,
            functions: BTreeMap::from([("parse".to_owned(), total - 3), ("send".to_owned(), 3)]),
        };
        let stretches = [vec![sample(20), sample(101)], vec![sample(23)]];
        let measurement = CASES[0].conclude(&stretches);
        assert_eq!(measurement.instructions, [vec![10, 51], vec![12]]);
        assert_eq!(
            (measurement.median(), measurement.medians()),
            (12, vec![51, 12])
        );
        let expected = "\
            http1: 12 instructions for one response\n\
            2 counts: median 51, least 10, most 51\n\
            1 counts: median 12, least 12, most 12\n     \
            10.0  87.0 %  parse\n      1.5  13.0 %  (all others)\n";
        assert_eq!(measurement.table(1), expected);
    }
}
