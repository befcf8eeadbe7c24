//! Lists of cells that one thread replaces and any thread reads.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// Appends `new`. Only one thread replaces the list, so nothing comes between reading and writing it.
pub(super) fn add<T>(list: &ArcSwap<Vec<Arc<T>>>, new: Arc<T>) {
    let mut all = Vec::clone(&list.load());
    all.push(new);
    list.store(Arc::new(all));
}

/// Drops what is not kept. For the same thread.
pub(super) fn retain<T>(list: &ArcSwap<Vec<Arc<T>>>, is_kept: impl Fn(&T) -> bool) {
    let now = list.load();
    if !now.iter().all(|one| is_kept(one)) {
        let kept = now.iter().filter(|one| is_kept(one)).cloned().collect();
        list.store(Arc::new(kept));
    }
}
