//! What the programs of this package share: durable writes of one committed offset each, for `keeplog-benches commits --peer`.

use std::error::Error;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// What a measurement may fail with.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The arguments of each program: `DIR THREADS SECONDS`.
pub struct Job {
    /// An empty directory.
    pub dir: PathBuf,
    threads: usize,
    time: Duration,
}

impl Job {
    /// From the command line.
    ///
    /// # Errors
    /// For other arguments.
    pub fn from_args() -> Outcome<Self> {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let [dir, threads, seconds] = &args[..] else { return Err("usage: DIR THREADS SECONDS".into()) };
        Ok(Self { dir: dir.into(), threads: threads.parse()?, time: Duration::from_secs_f64(seconds.parse()?) })
    }

    /// Calls `write` with the key and the value of a commit, which must be durable when it returns, on all threads until the
    /// time is over, and prints the rate and the latencies.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn run(&self, write: impl Fn(&[u8], &[u8]) -> Outcome<()> + Sync) -> Outcome<()> {
        let began = Instant::now();
        let work = |thread: usize| -> Outcome<Vec<Duration>> {
            let mut latencies = Vec::new();
            let mut number = 0_u64;
            while began.elapsed() < self.time {
                let key = format!("group-{}\0topic\0{}", (thread as u64 + number * 17) % 1000, number % 50);
                let before = Instant::now();
                write(key.as_bytes(), &[number.to_be_bytes(), [0; 8], [0; 8]].concat())?;
                latencies.push(before.elapsed());
                number += 1;
            }
            Ok(latencies)
        };
        let mut latencies = thread::scope(|scope| -> Outcome<Vec<Duration>> {
            let threads: Vec<_> = (0..self.threads).map(|thread| scope.spawn(move || work(thread))).collect();
            let mut all = Vec::new();
            for thread in threads {
                all.append(&mut thread.join().map_err(|_| "a thread panicked")??);
            }
            Ok(all)
        })?;
        let per_s = latencies.len() as f64 / began.elapsed().as_secs_f64();
        latencies.sort_unstable();
        let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).map_or(0.0, |wait| wait.as_secs_f64() * 1e6);
        println!("{{\"per_s\": {per_s}, \"p50_us\": {}, \"p99_us\": {}}}", at(0.5), at(0.99));
        Ok(())
    }
}
