//! The store on a disk: kills, damage, full and failing disks.

mod damage;
mod failing;
#[path = "../faults/mod.rs"]
mod faults;
mod full;
mod harness;
mod killing;
mod meeting;
#[path = "../messages/mod.rs"]
mod messages;
mod removing;
