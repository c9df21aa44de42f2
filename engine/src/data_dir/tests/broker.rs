//! A directory that a real broker left.

use keeplog_fixtures::{Set, copy_dir, unpack};

use super::*;
use crate::checkpoint::LeaderEpochs;
use crate::names::{FileName, LEADER_EPOCHS, PARTITION_METADATA};

#[test]
fn a_directory_that_a_broker_left_is_understood_and_kept() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("data");
    copy_dir(unpack(Set::Broker), &path);
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let before = Checkpoint::ALL.map(|which| checkpoint::read_offsets(&*storage, &path.join(which.file_name())).unwrap());
    let was_clean = storage.metadata(&path.join(CLEAN_MARK)).is_ok();
    let dir = DataDir::open(Arc::clone(&storage), &path).unwrap();
    assert_eq!((dir.warnings(), dir.directory_was_clean()), (&[][..], was_clean));
    assert_eq!(dir.recovery_point(&tp("__consumer_offsets-1")), 425);
    assert_eq!(dir.high_watermark(&tp("orders-2")), Some(1000));
    assert_eq!(dir.log_start(&tp("orders-2")), 0);
    assert!(dir.partitions().contains(&tp("etat.de_l-ete-0")), "a dash in the topic");
    for name in dir.partitions() {
        let epochs = LeaderEpochs::read(&*storage, &dir.partition_path(&name)).unwrap();
        assert!(!matches!(epochs, Loaded::Malformed(_)), "{name}: {epochs:?}");
        for entry in storage.list(&dir.partition_path(&name)).unwrap() {
            let ours = entry.name == LEADER_EPOCHS || entry.name == PARTITION_METADATA;
            let parsed = FileName::parse(&entry.name).map(|n| n.to_string());
            assert_eq!(parsed, (!ours).then_some(entry.name));
        }
        dir.opened(&name).unwrap();
        dir.set_recovery_point(&name, dir.recovery_point(&name));
        dir.closed_clean(&name);
    }
    assert!(dir.foreign().iter().all(|f| f.kind == ForeignKind::UnknownFile), "the dumps beside the partitions");
    assert!(dir.close().unwrap());
    for (which, before) in Checkpoint::ALL.into_iter().zip(before) {
        let after = checkpoint::read_offsets(&*storage, &path.join(which.file_name())).unwrap().or_empty();
        let present = before.or_empty().into_iter().filter(|(name, _)| path.join(name.to_string()).exists());
        assert!(present.eq(after), "{}", which.file_name());
    }
}
