package tidemark.consume;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteBufferDeserializer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A Spark source that reads given ranges of Kafka offsets and packs thousands of records into one row,
 * whose cells are the buffers of Arrow arrays. Spark's own Kafka source makes a row of each record, and handing those to
 * Python took longer than reading them and writing files together (docs/performance.md).
 *
 * <p>Options: `ranges`, as in `clicks/3/100/250,clicks/4/0/7;clicks/5/0/90`: half-open, tasks divided by semicolons, read
 * in this order and counted through; and the consumer's settings behind `kafka.`. Committed records only. Each range ends
 * with a row without records. One that Kafka no longer has in full, or that gives nothing for a while, is an error.
 */
public final class KafkaRanges implements TableProvider {
    /** Lists of numbers are little-endian: 64 bits for offsets and times, 32 for positions, where `values` begin and end. */
    private static final StructType SCHEMA =
        new StructType()
            .add("range", DataTypes.IntegerType, false)
            .add("records", DataTypes.IntegerType, false)
            .add("offsets", DataTypes.BinaryType, false)
            .add("timestamps", DataTypes.BinaryType, false)
            .add("positions", DataTypes.BinaryType, false)
            .add("values", DataTypes.BinaryType, false)
            .add("tombstones", DataTypes.BinaryType, true);

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return SCHEMA;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new RangesTable();
    }

    private static final class RangesTable implements SupportsRead {
        @Override
        public String name() {
            return "Kafka ranges";
        }

        @Override
        public StructType schema() {
            return SCHEMA;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Collections.singleton(TableCapability.BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> new RangesScan(options);
        }
    }

    private static final class RangesScan implements Scan, Batch {
        private final Share[] shares;
        private final HashMap<String, Object> settings = new HashMap<>();

        RangesScan(CaseInsensitiveStringMap options) {
            AtomicInteger numbers = new AtomicInteger();
            shares =
                Arrays.stream(options.get("ranges").split(";"))
                    .map(task -> Arrays.stream(task.split(",")))
                    .map(texts -> texts.map(text -> Range.parse(numbers.getAndIncrement(), text)).toArray(Range[]::new))
                    .map(Share::new)
                    .toArray(Share[]::new);
            options.forEach((name, value) -> {
                if (name.startsWith("kafka.")) {
                    settings.put(name.substring("kafka.".length()), value);
                }
            });
            settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
            settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
            settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        }

        @Override
        public StructType readSchema() {
            return SCHEMA;
        }

        @Override
        public Batch toBatch() {
            return this;
        }

        @Override
        public InputPartition[] planInputPartitions() {
            return shares;
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new Readers(settings);
        }
    }

    /** What one task reads. */
    private record Share(Range[] ranges) implements InputPartition {}

    private record Range(int number, String topic, int partition, long start, long end) implements Serializable {
        static Range parse(int number, String text) {
            String[] parts = text.split("/");
            return new Range(
                number, parts[0], Integer.parseInt(parts[1]), Long.parseLong(parts[2]), Long.parseLong(parts[3]));
        }

        @Override
        public String toString() {
            return topic + "-" + partition + " [" + start + ", " + end + ")";
        }
    }

    private record Readers(HashMap<String, Object> settings) implements PartitionReaderFactory {
        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            return new ShareReader((Share) partition, settings);
        }
    }

    /** Reads one range after the other; a row holds records of one range only. */
    private static final class ShareReader implements PartitionReader<InternalRow> {
        private static final Duration POLL = Duration.ofSeconds(1);
        private static final long PATIENCE_NS = Duration.ofSeconds(120).toNanos();

        private final Consumer<ByteBuffer, ByteBuffer> consumer;
        private final Iterator<Range> ranges;
        private final Pack pack = new Pack();
        private Range range;
        private TopicPartition partition;
        private Iterator<ConsumerRecord<ByteBuffer, ByteBuffer>> polled;
        private ConsumerRecord<ByteBuffer, ByteBuffer> waiting;
        private boolean isAtEnd;

        ShareReader(Share share, Map<String, Object> settings) {
            consumer = new KafkaConsumer<>(settings, new ByteBufferDeserializer(), new ByteBufferDeserializer());
            ranges = Arrays.asList(share.ranges).iterator();
            begin(ranges.next());
        }

        @Override
        public boolean next() {
            if (isAtEnd && !ranges.hasNext()) {
                return false;
            }
            if (isAtEnd) {
                begin(ranges.next());
            }
            pack.clear();
            isAtEnd = !fill();
            return true;
        }

        @Override
        public InternalRow get() {
            return pack.toRow(range.number);
        }

        @Override
        public void close() {
            consumer.close(Duration.ZERO);
        }

        private void begin(Range next) {
            range = next;
            partition = new TopicPartition(range.topic, range.partition);
            polled = Collections.emptyIterator();
            waiting = null;
            consumer.assign(List.of(partition));
            consumer.seek(partition, range.start);
        }

        private boolean fill() {
            while (hasRecord() && pack.takes(waiting)) {
                pack.add(waiting);
                waiting = null;
            }
            return pack.size() > 0;
        }

        private boolean hasRecord() {
            if (waiting == null) {
                waiting = polled.hasNext() || poll() ? polled.next() : null;
            }
            return waiting != null && waiting.offset() < range.end;
        }

        /** False at the range's end: behind it may stand markers of transactions, and holes, instead of a record. */
        private boolean poll() {
            long position = consumer.position(partition);
            long asked = System.nanoTime();
            while (position < range.end) {
                polled = ask().iterator();
                if (polled.hasNext()) {
                    return true;
                }
                long moved = consumer.position(partition);
                if (moved > position) {
                    position = moved;
                    asked = System.nanoTime();
                } else if (System.nanoTime() - asked > PATIENCE_NS) {
                    throw new IllegalStateException(
                        "Cannot read " + range + ": Kafka gave nothing behind " + position + " for 120 s");
                }
            }
            return false;
        }

        private List<ConsumerRecord<ByteBuffer, ByteBuffer>> ask() {
            try {
                return consumer.poll(POLL).records(partition);
            } catch (KafkaException error) {
                throw new IllegalStateException("Cannot read " + range + ": " + error.getMessage(), error);
            }
        }
    }

    /** Records side by side; few enough that a Python worker holds some of these at once, whatever the size of lines. */
    private static final class Pack {
        private static final int MOST_RECORDS = 32_768;
        private static final int MOST_BYTES = 1 << 20;

        private final ByteBuffer offsets = longs();
        private final ByteBuffer timestamps = longs();
        private final ByteBuffer positions = ByteBuffer.allocate(4 * (MOST_RECORDS + 1)).order(ByteOrder.LITTLE_ENDIAN);
        private ByteBuffer values = ByteBuffer.allocate(MOST_BYTES);
        private byte[] tombstones;
        private int size;

        private static ByteBuffer longs() {
            return ByteBuffer.allocate(8 * MOST_RECORDS).order(ByteOrder.LITTLE_ENDIAN);
        }

        void clear() {
            offsets.clear();
            timestamps.clear();
            positions.clear().putInt(0);
            values = values.capacity() > MOST_BYTES ? ByteBuffer.allocate(MOST_BYTES) : values.clear();
            tombstones = null;
            size = 0;
        }

        int size() {
            return size;
        }

        boolean takes(ConsumerRecord<ByteBuffer, ByteBuffer> record) {
            int more = record.value() == null ? 0 : record.value().remaining();
            return size == 0 || (size < MOST_RECORDS && more <= values.remaining());
        }

        void add(ConsumerRecord<ByteBuffer, ByteBuffer> record) {
            ByteBuffer value = record.value();
            offsets.putLong(record.offset());
            timestamps.putLong(record.timestamp());
            if (value == null) {
                if (tombstones == null) {
                    tombstones = new byte[MOST_RECORDS];
                }
                tombstones[size] = 1;
            } else {
                if (value.remaining() > values.remaining()) {
                    values = ByteBuffer.allocate(value.remaining());
                }
                values.put(value);
            }
            positions.putInt(values.position());
            size++;
        }

        InternalRow toRow(int range) {
            return new GenericInternalRow(
                new Object[] {
                    range,
                    size,
                    written(offsets),
                    written(timestamps),
                    written(positions),
                    written(values),
                    tombstones == null ? null : Arrays.copyOf(tombstones, size)
                });
        }

        private static byte[] written(ByteBuffer buffer) {
            return Arrays.copyOf(buffer.array(), buffer.position());
        }
    }
}
