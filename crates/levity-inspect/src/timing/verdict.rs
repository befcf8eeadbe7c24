//! The part of a run that took most of its time, and a sentence that says what to do about it.

use strum::IntoStaticStr;

use super::concurrency::{self, Level};
use super::lines::UPSTREAM_STEP;
use super::run::Run;
use super::units::{number, time};
use crate::RUN_QUEUE_WAIT_PERCENT_MIN;

/// A part of the time of a request, under its value in JSON. The parts of one log do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub(super) enum Part {
    /// Waiting for a turn at the disk.
    Queue,
    /// At the disk.
    Read,
    /// Queue and read together, of a log without `timing_us`.
    Disk,
    /// Waiting for a disk that did not answer in time.
    GivenUp,
    /// Between the disk and the loop.
    Handover,
    /// Writing to clients.
    Write,
    /// Waiting for an upstream.
    Upstream,
    /// Waiting for a thread that computes.
    FilterQueue,
    /// Computing for filters.
    Filter,
    /// Everything else.
    Server,
    /// As `Handover` or `Server`, while the loops waited for a processor.
    Processor,
}

/// The largest part.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) part: Part,
    /// Its share of the time of all requests, from 0 to 1.
    pub(super) share: f64,
    /// The meaning, and what to do.
    pub(super) sentence: String,
}

pub(super) fn verdict(run: &Run) -> Verdict {
    let total = run.requests.total_us().max(1e-3);
    let (largest, us) = largest_part(run);
    let share = (us / total).min(1.0);
    let wait = long_run_queue_wait(run);
    let part = match (largest, wait) {
        // Some of this time is the wait for a processor, or follows from it.
        (Part::Handover | Part::Server, Some(_)) => Part::Processor,
        _ => largest,
    };
    let mut sentence = sentence(run, part, share);
    if part != Part::GivenUp && run.given_up.count() > 0 {
        // Each of them is a request that failed, however short a part of the time they took.
        sentence = format!("{} {sentence}", given_up(run));
    }
    if let Some(wait) = wait.filter(|_| part != Part::Processor) {
        sentence += &format!(" Also, {}", too_few_processors(wait));
    }
    Verdict {
        part,
        share,
        sentence,
    }
}

/// The share of the time in which the loops waited for a processor, in percent, if it is worth a remark.
fn long_run_queue_wait(run: &Run) -> Option<f64> {
    let (mean, _) = run.run_queue_wait.mean_and_max()?;
    (mean >= RUN_QUEUE_WAIT_PERCENT_MIN).then_some(mean)
}

/// The largest part and its time in microseconds.
fn largest_part(run: &Run) -> (Part, f64) {
    let total = run.requests.total_us();
    let given_up = run.given_up.total_us();
    let disk = run.io_wait.total_us() - given_up;
    let to_header = run.upstream_queue.total_us() + run.upstream.total_us();
    // Where it is known, the wait for the body is included.
    let upstream = to_header.max(run.steps[UPSTREAM_STEP].total_us());
    let (filter_queue, filter) = (run.filter_queue.total_us(), run.filter.total_us());
    let elsewhere = disk + given_up + upstream + filter_queue + filter;
    if run.timed == 0 {
        let parts = [
            (Part::Disk, disk),
            (Part::GivenUp, given_up),
            (Part::Upstream, upstream),
            (Part::FilterQueue, filter_queue),
            (Part::Filter, filter),
            (Part::Server, total - elsewhere),
        ];
        return largest(&parts);
    }
    let (queue, read) = (run.queue.total_us(), run.read.total_us());
    let write = run.write.total_us();
    largest(&[
        (Part::Queue, queue),
        (Part::Read, read),
        (Part::GivenUp, given_up),
        (Part::Handover, run.handover.total_us()),
        (Part::Write, write),
        (Part::Upstream, upstream),
        (Part::FilterQueue, filter_queue),
        (Part::Filter, filter),
        (Part::Server, total - elsewhere - write),
    ])
}

fn largest(parts: &[(Part, f64)]) -> (Part, f64) {
    let largest = parts.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    *largest.expect("there are parts")
}

fn sentence(run: &Run, part: Part, share: f64) -> String {
    let percent = share * 100.0;
    let saturation = concurrency::saturation(&concurrency::levels(run));
    match (part, saturation) {
        (Part::Queue | Part::Read, Some((enough, busiest))) => {
            too_many(part, percent, &enough, &busiest)
        }
        (Part::Queue, None) => too_few(run, percent),
        (Part::Read, None) => reading(run, percent),
        (Part::Disk, _) => format!(
            "Waiting for the disk dominates: {percent:.0} % of the time. The log does not tell waiting for a turn and \
             reading apart: write `timing = \"chunk\"` under [log]."
        ),
        (Part::GivenUp, _) => given_up(run),
        (Part::Handover, _) => format!(
            "Waiting for the event loop dominates: {percent:.0} % of the time lay between the end of a read and the loop that \
             took it up. Look at levity_loop_hog_seconds and levity_worker_run_queue_wait_seconds_total."
        ),
        (Part::Write, _) => format!(
            "Giving bytes to clients dominates: {percent:.0} % of the time, waiting for them included. The disk is not the \
             limit; the network or slow clients are."
        ),
        (Part::Upstream, _) => format!(
            "Waiting for upstreams dominates: {percent:.0} % of the time, {:.0} % in their queues. Those are long where `connections` \
             are few or backends are; otherwise the applications are slow. The key `upstream` of each line says which.",
            percent_of(run, run.upstream_queue.total_us())
        ),
        (Part::FilterQueue | Part::Filter, _) => filters(run, part, percent),
        (Part::Server, _) if run.timed == 0 => format!(
            "The disk does not dominate: {:.0} % of the time was spent waiting for it. What the rest was the log does not tell: \
             write `timing = \"chunk\"` under [log].",
            100.0 - percent
        ),
        (Part::Server, _) => format!(
            "Neither disk nor clients dominate: {percent:.0} % of the time went into the steps of the server, or into waiting for \
             a turn on a loop. Look at the steps above, and at levity_loop_hog_seconds."
        ),
        (Part::Processor, _) => format!(
            "Neither disk nor clients dominate: {percent:.0} % of the time went into the steps of the server and into waiting \
             for a loop, and {}",
            too_few_processors(long_run_queue_wait(run).unwrap_or_default())
        ),
    }
}

fn given_up(run: &Run) -> String {
    let count = run.given_up.count();
    let requests = if count == 1 { "request" } else { "requests" };
    format!(
        "The disk did not answer: {count} {requests} gave up after limits.io_timeout, {:.0} % of the time. Look at the disk and its \
         mount: `dmesg`, the server of a network file system, `levity top`.",
        percent_of(run, run.given_up.total_us())
    )
}

fn filters(run: &Run, part: Part, percent: f64) -> String {
    let what = match part {
        Part::FilterQueue => format!(
            "Waiting for a thread that runs filters dominates: {percent:.0} % of the time; the filters themselves took {:.0} %. \
             The processors do not suffice for them.",
            percent_of(run, run.filter.total_us())
        ),
        _ => format!(
            "Filters of bodies dominate: {percent:.0} % of the time, while waiting for a thread that runs them took {:.0} %.",
            percent_of(run, run.filter_queue.total_us())
        ),
    };
    format!(
        "{what} Lower the levels of `compress_codings`, keep compressed variants beside the files (`precompressed`), or add \
         processors. levity_compressions_total says how many responses were compressed less, or not at all."
    )
}

fn too_few_processors(wait: f64) -> String {
    format!(
        "the event loops waited for a processor {wait:.0} % of the time. There are too few for what runs on them, or a CPU quota \
         is used up. If `nr_throttled` in the `cpu.stat` of the control group grows, raise its quota (`cpu.max`, `CPUQuota=`). \
         If other programs use the processors, move or stop them. Otherwise add processors."
    )
}

/// The share of the time of all requests, in percent.
fn percent_of(run: &Run, us: f64) -> f64 {
    us / run.requests.total_us().max(1e-3) * 100.0
}

fn per_trip(run: &Run, us: f64) -> f64 {
    us / run.trips.max(1) as f64
}

fn reading(run: &Run, percent: f64) -> String {
    let (queue, read) = (run.queue.total_us(), run.read.total_us());
    let readers = match queue * 2.0 < read {
        true => "There are enough readers.",
        false => {
            "A higher `disk.depth` may shorten that, as long as it does not make reads longer."
        }
    };
    format!(
        "Reading itself dominates: {percent:.0} % of the time, {} per trip, while waiting for a turn took {}. {readers} Keep \
         more of the content in memory, spread it over more disks, or get faster ones; compare with `iostat -x`.",
        time(per_trip(run, read)),
        time(per_trip(run, queue)),
    )
}

fn too_few(run: &Run, percent: f64) -> String {
    let (queue, read) = (run.queue.total_us(), run.read.total_us());
    let times = queue / read.max(1e-3);
    let at_once = match concurrency::levels(run).last() {
        Some(Level { to: 1, .. }) => ", with one read in flight at a time".to_owned(),
        Some(level) => format!(", with up to {} reads in flight", level.to),
        None => String::new(),
    };
    format!(
        "Waiting for a turn at the disk dominates: {percent:.0} % of the time, {} per trip, {times:.1} times as long as the \
         reads themselves ({}){at_once}. There are too few readers, or more requests than the disk can serve. Raise \
         `disk.depth` (and `disk.threads`) and compare two runs: there are enough readers when reads take longer and no more \
         of them are finished per second. Then only more memory or more disks help.",
        time(per_trip(run, queue)),
        time(per_trip(run, read)),
    )
}

fn too_many(part: Part, percent: f64, enough: &Level, busiest: &Level) -> String {
    let what = match part {
        Part::Queue => "Waiting for a turn at the disk",
        _ => "Reading itself",
    };
    format!(
        "{what} dominates: {percent:.0} % of the time; and the disk is at its limit. A read took {} with about {:.0} in flight \
         and {} with about {:.0}, which is {} and {} reads per second: more readers only make each read slower. There are too \
         many: lower `disk.depth` to {}. To serve more, keep more of the content in memory or spread it over more disks.",
        time(enough.mean_read_us),
        enough.mean_in_flight,
        time(busiest.mean_read_us),
        busiest.mean_in_flight,
        number(enough.per_second()),
        number(busiest.per_second()),
        enough.to,
    )
}

#[cfg(test)]
mod tests {
    use super::super::lines::{Filter, Request, Timing, Upstream};
    use super::super::tests::add_reads;
    use super::*;

    #[test]
    fn too_few_readers_show_as_queue_wait() {
        let mut run = Run::default();
        add_reads(&mut run, 1, 100, 90_000, 10_000);
        let verdict = verdict(&run);
        assert_eq!(verdict.part, Part::Queue);
        assert!((0.85..0.95).contains(&verdict.share), "{verdict:?}");
        let sentence = verdict.sentence;
        assert!(
            sentence.contains("9.0 times as long") && sentence.contains("too few readers"),
            "{sentence}"
        );
        assert!(
            sentence.contains("one read in flight") && sentence.contains("Raise `disk.depth`"),
            "{sentence}"
        );
    }

    #[test]
    fn too_many_readers_show_as_reads_that_grow_with_them() {
        for queue_us in [0, 500_000] {
            let mut run = Run::default();
            add_reads(&mut run, 1, 50, 0, 10_000);
            add_reads(&mut run, 16, 50, queue_us, 170_000);
            let sentence = verdict(&run).sentence;
            assert!(sentence.contains("There are too many"), "{sentence}");
            assert!(sentence.contains("lower `disk.depth`"), "{sentence}");
        }
    }

    #[test]
    fn more_readers_that_read_more_are_not_too_many() {
        let mut run = Run::default();
        add_reads(&mut run, 1, 50, 0, 10_000);
        add_reads(&mut run, 16, 50, 0, 12_000);
        let verdict = verdict(&run);
        assert_eq!(verdict.part, Part::Read);
        assert!(
            verdict.sentence.contains("enough readers"),
            "{}",
            verdict.sentence
        );
    }

    #[test]
    fn more_readers_may_help_reads_as_long_as_their_wait() {
        let mut run = Run::default();
        add_reads(&mut run, 4, 50, 9_000, 10_000);
        let sentence = verdict(&run).sentence;
        assert!(sentence.contains("Reading itself"), "{sentence}");
        assert!(sentence.contains("A higher `disk.depth` may"), "{sentence}");
    }

    #[test]
    fn upstreams_can_dominate_with_and_without_timing() {
        let mut timed = Timing::default();
        timed.steps[UPSTREAM_STEP] = Some(900.0);
        for (timing, ttfb_us) in [(None, 700.0), (Some(timed), 100.0)] {
            let mut run = Run::default();
            run.add(&Request {
                duration_us: 1_000.0,
                upstream: Some(Upstream {
                    queue_us: 200.0,
                    ttfb_us: Some(ttfb_us),
                }),
                timing,
                ..Request::default()
            });
            let verdict = verdict(&run);
            assert_eq!(verdict.part, Part::Upstream);
            let sentence = verdict.sentence;
            assert!(sentence.contains("90 % of the time, 20 % in"), "{sentence}");
        }
    }

    #[test]
    fn clients_the_loop_and_the_server_can_dominate_too() {
        for (write, io_wait, part) in [
            (900.0, 0.0, Part::Write),
            (0.0, 900.0, Part::Handover),
            (100.0, 100.0, Part::Server),
        ] {
            let mut run = Run::default();
            run.add(&Request {
                duration_us: 1_000.0,
                io_wait_us: io_wait,
                timing: Some(Timing {
                    write,
                    trips: 1,
                    ..Timing::default()
                }),
                ..Request::default()
            });
            assert_eq!(verdict(&run).part, part);
        }
    }

    #[test]
    fn filters_can_dominate_with_and_without_timing() {
        for timing in [false, true] {
            for (queue_us, time_us, part, start) in [
                (
                    800.0,
                    100.0,
                    Part::FilterQueue,
                    "Waiting for a thread that runs filters dominates: 80 % of the time; the filters themselves took 10 %.",
                ),
                (
                    100.0,
                    800.0,
                    Part::Filter,
                    "Filters of bodies dominate: 80 % of the time, while waiting for a thread that runs them took 10 %.",
                ),
                (50.0, 50.0, Part::Server, ""),
            ] {
                let mut run = Run::default();
                run.add(&Request {
                    duration_us: 1_000.0,
                    filter: Some(Filter { queue_us, time_us }),
                    timing: timing.then(Timing::default),
                    ..Request::default()
                });
                let verdict = verdict(&run);
                assert_eq!(verdict.part, part);
                assert!(verdict.sentence.starts_with(start), "{verdict:?}");
            }
        }
    }

    /// Four requests of 3 s, of which `given_up` s were spent on a disk that did not answer.
    fn dead_disk(timed: bool, given_up_s: f64) -> Run {
        let mut run = Run::default();
        for _ in 0..4 {
            run.add(&Request {
                duration_us: 3e6,
                io_wait_us: given_up_s * 1e6,
                given_up_us: given_up_s * 1e6,
                run_queue_wait_percent: Some(60.0),
                timing: timed.then(|| Timing {
                    trips: 1,
                    ..Timing::default()
                }),
                ..Request::default()
            });
        }
        run
    }

    #[test]
    fn a_disk_that_does_not_answer_comes_first() {
        for timed in [true, false] {
            let verdict = verdict(&dead_disk(timed, 2.97));
            assert_eq!(verdict.part, Part::GivenUp);
            let start = "The disk did not answer: 4 requests gave up after limits.io_timeout, 99 % of the time.";
            assert!(verdict.sentence.starts_with(start), "{verdict:?}");
        }
        let verdict = verdict(&dead_disk(true, 0.3));
        assert_eq!(verdict.part, Part::Processor);
        let start = "The disk did not answer: 4 requests gave up after limits.io_timeout, 10 % of the time.";
        assert!(verdict.sentence.starts_with(start), "{verdict:?}");
        assert!(
            verdict.sentence.contains("the event loops waited"),
            "{verdict:?}"
        );
    }

    /// A request of 1 ms, all of it in `write`, at the disk or in the steps of the server.
    fn run_of(write: f64, read: f64, handover: f64, wait_percents: &[f64]) -> Run {
        let mut run = Run::default();
        for percent in wait_percents {
            run.add(&Request {
                duration_us: 1_000.0,
                io_wait_us: read + handover,
                run_queue_wait_percent: Some(*percent),
                timing: Some(Timing {
                    write,
                    read,
                    trips: 1,
                    ..Timing::default()
                }),
                ..Request::default()
            });
        }
        run
    }

    #[test]
    fn loops_without_a_processor_are_the_cause_of_what_the_server_takes() {
        for (handover, wait_percents, part) in [
            (0.0, [5.0, 14.0], Part::Server),
            (0.0, [5.0, 15.0], Part::Processor),
            (900.0, [5.0, 14.0], Part::Handover),
            (900.0, [5.0, 15.0], Part::Processor),
        ] {
            let verdict = verdict(&run_of(0.0, 0.0, handover, &wait_percents));
            assert_eq!(verdict.part, part);
            let has_remedy = verdict
                .sentence
                .contains("10 % of the time. There are too few")
                && verdict.sentence.contains("CPU quota");
            assert_eq!(has_remedy, part == Part::Processor, "{verdict:?}");
        }
    }

    #[test]
    fn loops_without_a_processor_are_a_remark_on_other_verdicts() {
        for (write, read, part) in [(900.0, 0.0, Part::Write), (0.0, 900.0, Part::Read)] {
            let few = verdict(&run_of(write, read, 0.0, &[9.0]));
            let many = verdict(&run_of(write, read, 0.0, &[9.0, 51.0]));
            assert_eq!((few.part, many.part), (part, part));
            assert!(!few.sentence.contains("processor"), "{few:?}");
            let remark = " Also, the event loops waited for a processor 30 % of the time.";
            assert!(many.sentence.contains(remark), "{many:?}");
        }
    }
}
