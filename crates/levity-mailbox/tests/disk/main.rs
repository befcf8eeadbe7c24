//! The store on a disk: kills, damage, full and failing disks.

mod damage;
mod failing;
mod full;
mod harness;
mod killing;
mod meeting;
