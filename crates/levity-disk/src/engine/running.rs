//! The engines that a disk has started: one when it starts, others when a place asks for them.

use std::sync::{Arc, Mutex, OnceLock};

use super::contract::{Description, Engine, StartContext, StartError};
use super::pool::{Pool, Threads};
use super::table::ENGINES;
use crate::job::{Completion, Done, EngineId, Ready};
use crate::memory::Budget;
use crate::stats::{self, EngineCounters, EngineStats};
use crate::thread::lock;

/// Each is started once and stays until the disk ends.
pub(crate) struct Engines {
    /// In the order of [`ENGINES`].
    started: Vec<OnceLock<AtWork>>,
    own: EngineId,
    /// The one for reads past the page cache of jobs that name none, where that is another.
    for_direct: OnceLock<EngineId>,
    pool: Arc<Pool>,
    budget: Budget,
    jobs_max: usize,
    /// Held while an engine is started. Only who starts a disk or loads a configuration takes it.
    starting: Mutex<()>,
}

struct AtWork {
    engine: Box<dyn Engine>,
    counters: EngineCounters,
}

impl Engines {
    /// Starts the first engine, the one for jobs that name none. Blocks.
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

    /// Starts `description` unless it is at work. Blocks.
    pub(crate) fn add(
        &self,
        description: &'static Description,
        options: Option<&str>,
    ) -> Result<EngineId, StartError> {
        let _one_at_a_time = lock(&self.starting);
        let id = EngineId::of(description);
        let place = &self.started[usize::from(id.0)];
        if place.get().is_none() {
            let engine = (description.start)(&StartContext {
                name: description.name,
                pool: &self.pool,
                budget: &self.budget,
                jobs_max: self.jobs_max,
                options,
            })?;
            let counters = EngineCounters::default();
            place.get_or_init(|| AtWork { engine, counters });
        }
        Ok(id)
    }

    /// Lets `description` do the reads past the page cache of jobs that name no engine. Blocks.
    pub(crate) fn add_for_direct(
        &self,
        description: &'static Description,
    ) -> Result<(), StartError> {
        let id = self.add(description, None)?;
        self.for_direct.get_or_init(|| id);
        Ok(())
    }

    /// The one that [`Engines::add_for_direct`] has started.
    pub(crate) fn for_direct(&self) -> Option<EngineId> {
        self.for_direct.get().copied()
    }

    /// The one for jobs that name none.
    pub(crate) fn own(&self) -> EngineId {
        self.own
    }

    /// See [`Engine::note`].
    pub(crate) fn notes(&self) -> impl Iterator<Item = &str> {
        self.all().filter_map(|(_, at_work)| at_work.engine.note())
    }

    /// See [`Engine::note`]; of the engine called `name`, if it is at work.
    pub(crate) fn note(&self, name: &str) -> Option<&str> {
        let mut all = self.all();
        all.find(|(id, _)| id.name() == name)?.1.engine.note()
    }

    /// The engine `id`, which has been started.
    pub(crate) fn get(&self, id: EngineId) -> &dyn Engine {
        &*self.at_work(id).engine
    }

    fn at_work(&self, id: EngineId) -> &AtWork {
        let place = self.started[usize::from(id.0)].get();
        place.expect("only `add` hands out numbers, once it has started the engine")
    }

    fn all(&self) -> impl Iterator<Item = (EngineId, &AtWork)> {
        let ids = (0..).map(EngineId);
        ids.zip(&self.started)
            .filter_map(|(id, place)| Some((id, place.get()?)))
    }

    pub(crate) fn any_blocks_on_loop(&self) -> bool {
        self.all().any(|(id, _)| id.description().blocks_on_loop)
    }

    pub(crate) fn any_needs_sendfile(&self) -> bool {
        self.all().any(|(id, _)| id.description().needs_sendfile)
    }

    /// What an engine has answered.
    pub(crate) fn count(&self, id: EngineId, completion: &Completion) {
        let counters = &self.at_work(id).counters;
        counters.queue_time.add(completion.queued);
        counters.service_time.add(completion.service);
        let count_read = |ready: &Ready| {
            stats::add(&counters.reads, 1);
            stats::add(&counters.reads_direct, u64::from(completion.direct));
            stats::add(&counters.bytes_read, ready.len() as u64);
        };
        match &completion.result {
            Err(_)
            | Ok(Done::Listed(_) | Done::Created(_) | Done::Unlinked | Done::RootChecked(_)) => {}
            Ok(Done::Written(bytes)) => {
                stats::add(&counters.writes, 1);
                stats::add(&counters.bytes_written, *bytes as u64);
            }
            Ok(Done::Read(ready, _)) => count_read(ready),
            Ok(Done::Opened { first, .. }) => {
                stats::add(&counters.opens, 1);
                first.iter().for_each(count_read);
            }
        }
    }

    pub(crate) fn stats(&self) -> Vec<EngineStats> {
        let one = |(id, at_work): (EngineId, &AtWork)| {
            let Description {
                name,
                blocks_on_loop,
                ..
            } = *id.description();
            at_work.counters.snapshot(name, blocks_on_loop)
        };
        self.all().map(one).collect()
    }

    /// Threads of the pool at this moment.
    pub(crate) fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// See [`Engine::interrupt`].
    pub(crate) fn interrupt(&self) {
        self.all()
            .for_each(|(_, at_work)| at_work.engine.interrupt());
    }

    /// Ends all threads. Called once, when all work is finished.
    pub(crate) fn shutdown(&self) {
        self.all()
            .for_each(|(_, at_work)| at_work.engine.shutdown());
        self.pool.shutdown();
    }
}
