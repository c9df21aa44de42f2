//! Keeplog: an embedded log engine that keeps the newest record of every key.
#![forbid(unsafe_code)]
