//! Records of any kind, written as a batch and read back.

use arbitrary::{Arbitrary, Unstructured};
use keeplog_engine::record::{
    BatchHeader, BatchSpec, BatchWriter, Codec, EncodeError, EndMarker, Header, TimestampType, TxnResult, write_empty, write_end_marker,
};

use crate::entries::{self, LIMIT_BYTES, Plain, REUSED, WRITER};

#[derive(Arbitrary, Debug)]
struct Input {
    base_offset: u64,
    leader_epoch: i32,
    codec: u8,
    log_append: Option<i64>,
    producer: Option<(i64, i16, i32)>,
    transactional: bool,
    delete_horizon_ms: Option<i64>,
    kept: u64,
    marker: Option<(bool, i32)>,
    records: Vec<Record>,
}

#[derive(Arbitrary, Debug)]
struct Record {
    gap: u16,
    timestamp: i64,
    key: Option<Field>,
    value: Option<Field>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Bytes, some number of times: gives the codecs something to do.
#[derive(Arbitrary, Debug)]
struct Field {
    bytes: Vec<u8>,
    times: u8,
}

impl Field {
    fn bytes(&self) -> Vec<u8> {
        self.bytes.repeat(1 + usize::from(self.times % 32))
    }
}

/// A batch of any records: it reads back as written, copies to the same bytes, and loses exactly the records that
/// are left out.
pub fn round_trip(data: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let spec = spec(&input);
    if let Some((commit, coordinator_epoch)) = input.marker {
        marker_reads_back(&spec, commit, coordinator_epoch);
    }
    WRITER.with_borrow_mut(|writer| written_copied_and_thinned_out(writer, &spec, &input));
}

fn written_copied_and_thinned_out(writer: &mut BatchWriter, spec: &BatchSpec, input: &Input) {
    let records = write(writer, spec, input);
    let mut entry = Vec::new();
    let header = match writer.finish(&mut entry) {
        Ok(header) => header,
        Err(EncodeError::Empty) if records.is_empty() => return,
        Err(error) => panic!("{} records can't be written: {error}", records.len()),
    };
    if writer.size_bytes() > LIMIT_BYTES {
        return;
    }
    assert_eq!(BatchHeader::parse(&entry), Ok(header));
    header.verify_crc(&entry).expect("a written batch has a checksum");
    assert_eq!(entries::decode(&entry).as_ref(), Ok(&records));

    let mut copy = Vec::new();
    copy_some(writer, &entry, &header, |_| true, &mut copy);
    // With append times a copy carries, as Kafka's does, the time of the batch in every record.
    if input.log_append.is_none() {
        assert_eq!(copy, entry, "a copy has other bytes");
    }
    assert_eq!(entries::decode(&copy).as_ref(), Ok(&records));

    let survives = |index: usize| input.kept >> (index % 64) & 1 == 1;
    let survivors: Vec<Plain> = records.iter().enumerate().filter(|(i, _)| survives(*i)).map(|(_, r)| r.clone()).collect();
    let mut less = Vec::new();
    copy_some(writer, &entry, &header, survives, &mut less);
    let lessened = BatchHeader::parse(&less).expect("a written batch has a header");
    lessened.verify_crc(&less).expect("a written batch has a checksum");
    assert_eq!((lessened.base_offset, lessened.last_offset), (header.base_offset, header.last_offset));
    assert_eq!(lessened.last_sequence(), header.last_sequence());
    assert_eq!(entries::decode(&less).as_ref(), Ok(&survivors));
}

fn spec(input: &Input) -> BatchSpec {
    let (producer_id, producer_epoch, base_sequence) = input.producer.unwrap_or((-1, -1, -1));
    BatchSpec {
        base_offset: input.base_offset >> 2,
        leader_epoch: input.leader_epoch,
        codec: Codec::from_bits(input.codec % 5).expect("five codecs"),
        timestamp_type: if input.log_append.is_some() { TimestampType::LogAppend } else { TimestampType::Create },
        max_timestamp: input.log_append,
        producer_id,
        producer_epoch,
        base_sequence,
        transactional: input.transactional,
        delete_horizon_ms: input.delete_horizon_ms,
        ..BatchSpec::default()
    }
}

/// Pushes what can be pushed, and returns it as it must come back.
fn write(writer: &mut BatchWriter, spec: &BatchSpec, input: &Input) -> Vec<Plain> {
    writer.begin(*spec);
    let mut pushed = Vec::new();
    let mut offset = spec.base_offset;
    for record in &input.records {
        offset += u64::from(record.gap);
        let (key, value) = (record.key.as_ref().map(Field::bytes), record.value.as_ref().map(Field::bytes));
        let headers: Vec<Header> =
            record.headers.iter().map(|(key, value)| Header { key: key.clone(), value: value.clone().map(Into::into) }).collect();
        match writer.push(offset, record.timestamp, key.as_deref(), value.as_deref(), &headers) {
            Ok(()) => {
                let timestamp = input.log_append.unwrap_or(record.timestamp);
                let headers = record.headers.iter().map(|(key, value)| (key.clone().into_bytes(), value.clone())).collect();
                pushed.push(Plain { offset, timestamp, key, value, headers });
                offset += 1;
            }
            Err(EncodeError::Timestamp(timestamp)) => assert!(timestamp < -1 && timestamp == record.timestamp),
            Err(error) => panic!("a record can't be written: {error}"),
        }
    }
    pushed
}

fn copy_some(writer: &mut BatchWriter, entry: &[u8], header: &BatchHeader, keep: impl Fn(usize) -> bool, out: &mut Vec<u8>) {
    writer.begin(BatchSpec::like(header).expect("the codec was just used"));
    REUSED.with_borrow_mut(|decoder| {
        for (index, record) in decoder.records(entry).expect("it was decoded before").enumerate() {
            if keep(index) {
                writer.push_ref(&record.expect("it was decoded before")).expect("it was written before");
            }
        }
    });
    if writer.is_empty() {
        write_empty(header, out);
    } else {
        writer.finish(out).expect("fewer records than before");
    }
}

fn marker_reads_back(spec: &BatchSpec, commit: bool, coordinator_epoch: i32) {
    let marker = EndMarker {
        offset: spec.base_offset,
        leader_epoch: spec.leader_epoch,
        timestamp: 5,
        producer_id: spec.producer_id,
        producer_epoch: spec.producer_epoch,
        result: if commit { TxnResult::Committed } else { TxnResult::Aborted },
        coordinator_epoch,
    };
    let mut entry = Vec::new();
    let header = write_end_marker(&marker, &mut entry).expect("markers fit");
    assert!(header.is_control() && header.is_transactional() && header.verify_crc(&entry).is_ok());
    let records = entries::decode(&entry).expect("our own markers are sound");
    let (key, value) = (records[0].key.as_ref().expect("a key"), records[0].value.as_ref().expect("a value"));
    let kind = keeplog_engine::record::ControlType::of_key(key).expect("a known type");
    assert_eq!(kind == keeplog_engine::record::ControlType::Commit, commit);
    assert_eq!(keeplog_engine::record::coordinator_epoch_of(value), Ok(coordinator_epoch));
}
