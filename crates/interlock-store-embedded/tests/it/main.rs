//! The embedded store from outside: the contract, and what a disk and other processes can do to it.

mod cast;
mod child;
mod conformance;
mod crash;
mod disk;
mod maintain;
mod processes;
mod refusals;
