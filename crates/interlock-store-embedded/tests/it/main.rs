//! The embedded store from outside: the contract, and what a disk and other processes can do to it.

mod conformance;
