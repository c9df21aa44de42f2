use super::*;
use crate::tests::build::put;
use crate::tests::memory::MemoryLog;

/// 40 batches of growing size, and where each begins.
fn log() -> (MemoryLog, Vec<u32>) {
    let mut log = MemoryLog::new();
    let mut positions = Vec::new();
    for i in 0..40 {
        positions.push(log.segments[0].log.len() as u32);
        log.append(&[put("key", &"x".repeat(i * 10))]);
    }
    (log, positions)
}

fn cuts(log: &MemoryLog, chunk_bytes: u32, trust: Trust) -> Vec<u32> {
    let sources = log.sources();
    let file = sources[0].file().unwrap();
    Cutter { chunk_bytes, trust }.cut(&*sources[0], &*file).unwrap()
}

#[test]
fn chunks_chain_from_start_to_end_whatever_the_index_knows() {
    let (mut log, positions) = log();
    let size = log.segments[0].log.len() as u32;
    let largest = size - positions[39];
    for every in [1, 2, 7, 39, 100] {
        log.segments[0].index_positions = positions.iter().copied().skip(1).step_by(every).collect();
        for chunk_bytes in [1, 100, 200, 1000, 5000, size - 1, size, size + 1, u32::MAX] {
            for trust in [Trust::Indexes, Trust::Headers] {
                let cuts = cuts(&log, chunk_bytes, trust);
                assert_eq!((cuts[0], *cuts.last().unwrap()), (0, size));
                assert!(cuts.is_sorted_by(|a, b| a < b), "{cuts:?}");
                assert!(cuts[..cuts.len() - 1].iter().all(|cut| positions.contains(cut)), "{cuts:?}");
                let most = chunk_bytes.saturating_mul(2).max(largest);
                assert!(cuts.windows(2).all(|chunk| chunk[1] - chunk[0] <= most), "{chunk_bytes}: {cuts:?}");
            }
        }
    }
}

#[test]
fn an_index_that_is_dense_enough_saves_the_walk() {
    let (mut log, positions) = log();
    let size = log.segments[0].log.len() as u32;
    log.segments[0].index_positions = positions[1..].iter().copied().step_by(3).collect();
    // No entry could be read from these bytes: the cuts come from the index alone.
    log.segments[0].log.fill(0);
    assert_eq!(cuts(&log, 3000, Trust::Indexes).last(), Some(&size));
}

#[test]
fn an_empty_segment_has_no_chunk() {
    assert_eq!(cuts(&MemoryLog::new(), 100, Trust::Indexes), [0]);
}

#[test]
fn an_index_out_of_order_or_beyond_the_file_is_not_used() {
    let (honest, positions) = log();
    let size = honest.segments[0].log.len() as u32;
    for lie in [vec![positions[3], positions[2]], vec![size], vec![positions[1], u32::MAX]] {
        let mut log = honest.clone();
        log.segments[0].index_positions = lie;
        assert_eq!(cuts(&log, 500, Trust::Indexes), cuts(&honest, 500, Trust::Headers));
    }
}
