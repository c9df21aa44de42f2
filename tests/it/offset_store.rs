//! The offset store as an application sees it.

use keeplog::{ErrorKind, Lead, OffsetAndMetadata, OffsetManager, OffsetOptions, OffsetStore, PartitionState, RequiredAcks, StoreOptions};

fn options() -> OffsetOptions {
    OffsetOptions::new().offsets_topic_segment_bytes(4096).store(StoreOptions::new().log_cleaner_backoff_ms(10))
}

fn at(offset: u64) -> OffsetAndMetadata {
    OffsetAndMetadata::new(offset)
}

#[test]
fn what_was_committed_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let offsets = OffsetStore::open(dir.path(), options()).unwrap();
    for round in 0..50 {
        for group in 0..20 {
            let commit = [("orders", 0, at(round * 10 + group)), ("orders", 7, at(round).metadata("größe"))];
            offsets.commit(&format!("group-{group}"), &commit).unwrap();
        }
    }
    offsets.delete_group("group-3").unwrap();
    offsets.delete_offsets("group-4", &[("orders", 0)]).unwrap();
    let before = offsets.list().unwrap();
    assert_eq!(before.len(), 37);
    offsets.close().unwrap();
    assert_eq!(offsets.commit("late", &[("orders", 0, at(1))]).unwrap_err().kind(), ErrorKind::Closed);

    let offsets = OffsetStore::open(dir.path(), options()).unwrap();
    assert_eq!(offsets.list().unwrap(), before);
    assert_eq!(offsets.fetch("group-5", &[("orders", 7), ("orders", 1)]).unwrap(), [Some(at(49).metadata("größe")), None]);
    assert!(offsets.fetch_all("group-3").unwrap().is_empty());
    assert_eq!(offsets.fetch("group-4", &[("orders", 0), ("orders", 7)]).unwrap()[0], None);
}

/// The cleaner works beneath the store, and the answers stay.
#[test]
fn answers_stay_while_the_cleaner_works() {
    let dir = tempfile::tempdir().unwrap();
    let offsets =
        OffsetStore::open(dir.path(), options().offsets_commit_required_acks(RequiredAcks::Written).offsets_topic_num_partitions(1))
            .unwrap();
    for round in 0..400_u64 {
        let commit: Vec<_> = (0..20).map(|p| ("orders", p, at(round))).collect();
        offsets.commit("g", &commit).unwrap();
    }
    offsets.store().wake_cleaner();
    for _ in 0..1000 {
        if offsets.store().cleaner().passes > 0 {
            break;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    let status = offsets.store().cleaner();
    assert!(status.passes > 0 && status.bytes_written * 4 < status.bytes_read, "{status:?}");
    let before = offsets.list().unwrap();
    assert!(before.len() == 20 && offsets.fetch("g", &[("orders", 19)]).unwrap() == [Some(at(399))]);
    let report = offsets.reload().unwrap();
    assert!(report.records < 8000, "{report}");
    assert_eq!(offsets.list().unwrap(), before);
}

#[test]
fn the_number_of_partitions_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let offsets = OffsetStore::open(dir.path(), options().offsets_topic_num_partitions(3)).unwrap();
    offsets.commit("g", &[("t", 0, at(5))]).unwrap();
    offsets.close().unwrap();
    let error = OffsetStore::open(dir.path(), options().offsets_topic_num_partitions(4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let offsets = OffsetStore::open(dir.path(), options()).unwrap();
    assert_eq!(offsets.partitions().get(), 3);
    offsets.close().unwrap();
    std::fs::remove_dir_all(dir.path().join("__consumer_offsets-1")).unwrap();
    assert!(OffsetStore::open(dir.path(), options()).unwrap_err().to_string().contains("partition 1"));
    assert!(OffsetStore::open(tempfile::tempdir().unwrap().path(), options().offsets_topic_num_partitions(0)).is_err());
}

/// What a real broker left: the same answers as the broker gave.
#[test]
fn a_brokers_directory_is_an_offset_store() {
    let dir = tempfile::tempdir().unwrap();
    let source = keeplog_fixtures::unpack(keeplog_fixtures::Set::Broker);
    for partition in 0..4 {
        let name = format!("__consumer_offsets-{partition}");
        keeplog_fixtures::copy_dir(source.join(&name), dir.path().join(&name));
    }
    let offsets = OffsetStore::open(dir.path(), OffsetOptions::new()).unwrap();
    let mut listed: Vec<String> = offsets.list().unwrap().iter().map(ToString::to_string).collect();
    let answers = std::fs::read_to_string(source.join("committed-offsets.tsv")).unwrap();
    let mut wanted: Vec<_> = answers.lines().skip(1).map(str::to_owned).collect();
    listed.sort();
    wanted.sort();
    assert_eq!(listed, wanted);
}

/// A first open that a crash interrupted has made some of the partitions: the next one makes the others.
#[test]
fn an_interrupted_first_open_is_brought_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    drop(keeplog::Log::open(dir.path().join("__consumer_offsets-0"), keeplog::LogOptions::new()).unwrap());
    std::fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
    let offsets = OffsetStore::open(dir.path(), options().offsets_topic_num_partitions(3)).unwrap();
    assert_eq!(offsets.partitions().get(), 3);
    offsets.commit("g", &[("orders", 0, at(1))]).unwrap();
    offsets.close().unwrap();
    assert!(OffsetStore::open(dir.path(), options().offsets_topic_num_partitions(4)).is_err());
}

/// What was safe once and is gone is not passed over: stale answers are worse than none.
#[test]
fn a_store_that_lost_what_was_safe_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let offsets = OffsetStore::open(dir.path(), options().offsets_topic_num_partitions(1)).unwrap();
    offsets.commit("g", &[("orders", 0, at(1))]).unwrap();
    offsets.commit("g", &[("orders", 0, at(2))]).unwrap();
    offsets.close().unwrap();
    let log = dir.path().join("__consumer_offsets-0/00000000000000000000.log");
    let bytes = std::fs::read(&log).unwrap();
    std::fs::write(&log, &bytes[..bytes.len() - 60]).unwrap();
    std::fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
    let error = OffsetStore::open(dir.path(), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("safe once"), "{error}");
    // Told once, what is left is served.
    let offsets = OffsetStore::open(dir.path(), options()).unwrap();
    assert_eq!(offsets.fetch("g", &[("orders", 0)]).unwrap(), [Some(at(1))]);
}

/// Waits until `is_so`, as long as it takes; a test that hangs has failed.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

#[test]
fn commits_that_nobody_waits_for_are_synced_by_a_thread_of_the_store() {
    let dir = tempfile::tempdir().unwrap();
    for acks in [RequiredAcks::Synced, RequiredAcks::Written, RequiredAcks::Queued] {
        let offsets = OffsetStore::open(dir.path(), options().offsets_commit_required_acks(acks)).unwrap();
        let offset = 100 + acks as u64;
        let pending: Vec<_> = (0..100).map(|p| offsets.commit_async("g", &[("orders", p, at(offset))])).collect();
        until(|| pending.iter().all(keeplog::Pending::is_answered));
        until(|| offsets.fetch_all("g").unwrap().iter().all(|held| held.committed.offset == offset));
        until(|| offsets.store().logs().iter().all(|log| log.recovery_point() == log.end_offset()));
        offsets.close().unwrap();
    }
}

#[test]
fn a_commit_is_a_future_of_any_runtime() {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let offsets = OffsetStore::open(dir.path(), options()).unwrap();
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut commit = std::pin::pin!(async {
        offsets.commit_async("g", &[("orders", 0, at(1))]).await?;
        let manager: &dyn OffsetManager = &offsets;
        manager.commit_async("g", &[("orders", 0, at(2))]).await?;
        manager.fetch_async("g", &[("orders", 0)]).await
    });
    let fetched = loop {
        match std::future::Future::poll(commit.as_mut(), &mut context) {
            std::task::Poll::Ready(answer) => break answer.unwrap(),
            std::task::Poll::Pending => std::thread::park(),
        }
    };
    assert_eq!(fetched, [Some(at(2))]);
}

#[test]
fn closing_and_dropping_answer_everything_that_was_committed() {
    let dir = tempfile::tempdir().unwrap();
    for by_close in [true, false] {
        let offsets = OffsetStore::open(dir.path(), options().store(StoreOptions::new().background_thread(false))).unwrap();
        let pending = offsets.commit_async("g", &[("orders", i32::from(by_close), at(5))]);
        if by_close {
            offsets.close().unwrap();
        }
        drop(offsets);
        assert!(pending.is_answered());
        pending.wait().unwrap();
    }
    assert_eq!(OffsetStore::open(dir.path(), options()).unwrap().fetch_all("g").unwrap().len(), 2);
}

/// The thread that answers may be the one that lets go of the store.
#[test]
fn a_callback_may_hold_the_last_handle() {
    let dir = tempfile::tempdir().unwrap();
    let offsets = OffsetStore::open(dir.path(), options()).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    let last = offsets.clone();
    offsets.commit_async("g", &[("orders", 0, at(1))]).on_answer(move |answer| {
        answer.unwrap();
        drop(last);
        done.send(()).unwrap();
    });
    drop(offsets);
    is_done.recv().unwrap();
    until(|| OffsetStore::open(dir.path(), options()).is_ok_and(|again| again.fetch_all("g").unwrap().len() == 1));
}

#[test]
fn partitions_are_loaded_in_the_background_when_they_are_led() {
    for threads in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let offsets = OffsetStore::open(dir.path(), options()).unwrap();
        (0..40).for_each(|group| offsets.commit(&format!("group-{group}"), &[("orders", 0, at(group))]).unwrap());
        let all = offsets.list().unwrap();
        offsets.close().unwrap();

        let options = options().lead_all(false).store(StoreOptions::new().background_thread(threads));
        let offsets = OffsetStore::open(dir.path(), options).unwrap();
        assert_eq!((offsets.list().unwrap().len(), offsets.commit("g", &[("t", 0, at(1))]).unwrap_err().kind()), (0, ErrorKind::NotLeader));
        for partition in 0..4 {
            assert_eq!(offsets.lead(partition, 1).unwrap(), Lead::Loads);
        }
        until(|| (0..4).all(|partition| offsets.partition_state(partition).unwrap() == PartitionState::Active));
        assert_eq!(offsets.list().unwrap(), all);
        offsets.resign(2, Some(2)).unwrap();
        assert!(offsets.list().unwrap().len() < all.len());
    }
}

#[test]
fn offsets_that_have_expired_go_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let hourly = || std::time::Duration::from_secs(3600);
    let offsets = OffsetStore::open(dir.path(), options().offsets_retention_check_interval(hourly())).unwrap();
    offsets.commit("old", &[("orders", 0, at(1).commit_timestamp_ms(1))]).unwrap();
    offsets.commit("new", &[("orders", 0, at(1))]).unwrap();
    offsets.set_retention_check_interval(std::time::Duration::from_millis(5));
    until(|| offsets.groups().unwrap().len() == 1);
    assert_eq!(offsets.fetch("new", &[("orders", 0)]).unwrap(), [Some(at(1))]);
}
