//! The engines that a disk has started: one when it starts, others when a location names them.

use std::sync::{Arc, Mutex, OnceLock};

use super::contract::{Description, Engine, StartContext, StartError};
use super::pool::{Arrivals, Pool, Threads};
use super::table::ENGINES;
use crate::job::{Completion, Done, EngineId};
use crate::memory::Budget;
use crate::stats::{self, EngineCounters, EngineStats};
use crate::thread::lock;

/// An engine is started once and runs until the disk is shut down.
pub(crate) struct Engines {
    /// In the order of [`ENGINES`].
    started: Vec<OnceLock<Running>>,
    own: EngineId,
    /// The engine for reads past the page cache of jobs that name none, if that is another one.
    for_direct: OnceLock<EngineId>,
    pool: Arc<Pool>,
    budget: Budget,
    jobs_max: usize,
    /// Held while an engine is started: when a disk starts or a configuration is loaded.
    starting: Mutex<()>,
}

struct Running {
    engine: Box<dyn Engine>,
    counters: EngineCounters,
}

impl Engines {
    /// Starts the engine for jobs that name none. Blocks.
    pub(crate) fn start(
        own: &'static Description,
        options: Option<&str>,
        threads: Threads,
        budget: &Budget,
    ) -> Result<Engines, StartError> {
        let engines = Engines {
            started: ENGINES.iter().map(|_| OnceLock::new()).collect(),
            own: EngineId::of(own),
            for_direct: OnceLock::new(),
            pool: Pool::start(threads).map_err(StartError::Thread)?,
            budget: budget.clone(),
            jobs_max: threads.total,
            starting: Mutex::new(()),
        };
        match engines.add(own, options) {
            Ok(_) => Ok(engines),
            Err(error) => {
                engines.shutdown();
                Err(error)
            }
        }
    }

    /// Starts an engine unless it runs. Blocks.
    pub(crate) fn add(
        &self,
        description: &'static Description,
        options: Option<&str>,
    ) -> Result<EngineId, StartError> {
        let _one_at_a_time = lock(&self.starting);
        let id = EngineId::of(description);
        let entry = &self.started[usize::from(id.0)];
        if entry.get().is_none() {
            let engine = (description.start)(&StartContext {
                name: description.name,
                pool: &self.pool,
                budget: &self.budget,
                jobs_max: self.jobs_max,
                options,
            })?;
            let counters = EngineCounters::default();
            entry.get_or_init(|| Running { engine, counters });
        }
        Ok(id)
    }

    /// Starts the engine for reads past the page cache of jobs that name none. Blocks.
    pub(crate) fn add_for_direct(
        &self,
        description: &'static Description,
    ) -> Result<(), StartError> {
        let id = self.add(description, None)?;
        self.for_direct.get_or_init(|| id);
        Ok(())
    }

    /// The engine for a job that names `named`. `direct`: it is a read past the page cache.
    pub(crate) fn choose(&self, named: Option<EngineId>, direct: bool) -> EngineId {
        let for_direct = self.for_direct.get().filter(|_| direct);
        named.or(for_direct.copied()).unwrap_or(self.own)
    }

    /// The engine for jobs that name none.
    pub(crate) fn own(&self) -> EngineId {
        self.own
    }

    /// See [`Engine::note`].
    pub(crate) fn notes(&self) -> impl Iterator<Item = &str> {
        self.all().filter_map(|(_, running)| running.engine.note())
    }

    /// See [`Engine::note`]; `None` if the engine called `name` does not run.
    pub(crate) fn note(&self, name: &str) -> Option<&str> {
        let mut all = self.all();
        all.find(|(id, _)| id.name() == name)?.1.engine.note()
    }

    /// The engine `id`, which has been started.
    pub(crate) fn get(&self, id: EngineId) -> &dyn Engine {
        &*self.running(id).engine
    }

    fn running(&self, id: EngineId) -> &Running {
        let entry = self.started[usize::from(id.0)].get();
        entry.expect("only `add` returns an index, after it has started the engine")
    }

    fn all(&self) -> impl Iterator<Item = (EngineId, &Running)> {
        let ids = (0..).map(EngineId);
        ids.zip(&self.started)
            .filter_map(|(id, entry)| Some((id, entry.get()?)))
    }

    pub(crate) fn any_blocks_on_loop(&self) -> bool {
        self.all().any(|(id, _)| id.description().blocks_on_loop)
    }

    pub(crate) fn any_needs_sendfile(&self) -> bool {
        self.all().any(|(id, _)| id.description().needs_sendfile)
    }

    /// Counts a completion of an engine.
    pub(crate) fn count(&self, id: EngineId, completion: &Completion) {
        let counters = &self.running(id).counters;
        counters.queue_time.add(completion.queued);
        counters.service_time.add(completion.service);
        if let Some(ready) = completion.ready() {
            stats::add(&counters.reads, 1);
            stats::add(&counters.reads_direct, u64::from(completion.direct));
            stats::add(&counters.bytes_read, ready.len() as u64);
        }
        if let Some(len) = completion.written() {
            stats::add(&counters.writes, 1);
            stats::add(&counters.bytes_written, len as u64);
        }
        match &completion.result {
            Ok(Done::Open(_)) => stats::add(&counters.opens, 1),
            Ok(Done::Sync(())) => stats::add(&counters.syncs, 1),
            _ => {}
        }
    }

    pub(crate) fn stats(&self) -> Vec<EngineStats> {
        let one = |(id, running): (EngineId, &Running)| {
            let Description {
                name,
                blocks_on_loop,
                ..
            } = *id.description();
            running.counters.snapshot(name, blocks_on_loop)
        };
        self.all().map(one).collect()
    }

    /// See [`Pool::serve_arrivals`].
    pub(crate) fn serve_arrivals(&self, arrivals: Box<dyn Arrivals>) {
        self.pool.serve_arrivals(arrivals);
    }

    /// See [`Pool::wake`].
    pub(crate) fn wake_thread(&self) -> bool {
        self.pool.wake()
    }

    /// Present number of threads in the pool.
    pub(crate) fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// See [`Engine::interrupt`].
    pub(crate) fn interrupt(&self) {
        self.all()
            .for_each(|(_, running)| running.engine.interrupt());
    }

    /// Ends all threads. Called once, when all work is finished.
    pub(crate) fn shutdown(&self) {
        self.all()
            .for_each(|(_, running)| running.engine.shutdown());
        self.pool.shutdown();
    }
}
