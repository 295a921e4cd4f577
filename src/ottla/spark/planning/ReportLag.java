package ottla.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.InvocationTargetException;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Creates a rule that gives streams of ottla the metrics of Spark's Kafka source, and the options of their table. Python
 * sources have neither.
 */
public class ReportLag extends AbstractFunction1 {
    public Object apply(Object session) {
        return new ReplaceStreams((SparkSession) session);
    }
}

/** Runs while Spark analyses a query, before it creates the streams. */
class ReplaceStreams extends Rule {
    private final SparkSession session;

    ReplaceStreams(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        return plan.transformDown(new ReplaceTable(session));
    }
}

class ReplaceTable extends AbstractPartialFunction {
    private final SparkSession session;

    ReplaceTable(SparkSession session) {
        this.session = session;
    }

    public boolean isDefinedAt(Object node) {
        return node instanceof StreamingRelationV2 && isPlain(((StreamingRelationV2) node).table());
    }

    private static boolean isPlain(Object table) {
        return table instanceof PythonTable
            && !(table instanceof MeasuredTable)
            && "ottla".equalsIgnoreCase(((PythonTable) table).name());
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
        if (!isDefinedAt(node)) {
            return otherwise.apply(node);
        }
        StreamingRelationV2 relation = (StreamingRelationV2) node;
        Object[] parts = new Object[relation.productArity()];
        for (int i = 0; i < parts.length; i++) {
            Object part = relation.productElement(i);
            if (isPlain(part)) {
                parts[i] = new MeasuredTable((PythonTable) part);
            } else {
                parts[i] = part == relation.extraOptions() ? options(relation) : part;
            }
        }
        return relation.makeCopy(parts);
    }

    private CaseInsensitiveStringMap options(StreamingRelationV2 relation) {
        try {
            return PlanEachQuery.options(session, relation.catalog(), relation.identifier(), relation.extraOptions());
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException("the options of " + relation.sourceName() + " were not found: " + error, error);
        }
    }
}

class MeasuredTable extends PythonTable {
    private final PythonTable table;

    MeasuredTable(PythonTable table) {
        super((PythonDataSourceV2) null, table.name(), table.schema());
        this.table = table;
    }

    public ScanBuilder newScanBuilder(final CaseInsensitiveStringMap options) {
        return new ScanBuilder() {
            public Scan build() {
                return new MeasuredScan(table, options, table.newScanBuilder(options).build());
            }
        };
    }
}

class MeasuredScan implements Scan {
    private final PythonTable table;
    private final CaseInsensitiveStringMap options;
    private final Scan scan;

    MeasuredScan(PythonTable table, CaseInsensitiveStringMap options, Scan scan) {
        this.table = table;
        this.options = options;
        this.scan = scan;
    }

    public StructType readSchema() {
        return scan.readSchema();
    }

    public String description() {
        return scan.description();
    }

    public CustomMetric[] supportedCustomMetrics() {
        return scan.supportedCustomMetrics();
    }

    public Scan.ColumnarSupportMode columnarSupportMode() {
        return scan.columnarSupportMode();
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
        MicroBatchStream stream = forked();
        if (stream == null) {
            stream = scan.toMicroBatchStream(checkpoint);
        }
        return stream instanceof SupportsTriggerAvailableNow ? new MeasuredStream(stream) : stream;
    }

    /** Null if ForkedReader could not be compiled for this version of Spark. */
    private MicroBatchStream forked() {
        Class[] types = new Class[] {PythonTable.class, CaseInsensitiveStringMap.class, StructType.class};
        try {
            return (MicroBatchStream) Class.forName("ottla.spark.ForkedReader", true, getClass().getClassLoader())
                .getMethod("open", types).invoke(null, new Object[] {table, options, scan.readSchema()});
        } catch (InvocationTargetException error) {
            Platform.throwException(error.getCause());
        } catch (ReflectiveOperationException error) {
            return null;
        }
        return null;
    }
}

class MeasuredStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final MicroBatchStream stream;
    private final SupportsTriggerAvailableNow admission;
    private volatile Offset latest;

    MeasuredStream(MicroBatchStream stream) {
        this.stream = stream;
        this.admission = (SupportsTriggerAvailableNow) stream;
    }

    /** How far the query is behind the offsets that it has just seen. Spark asks after each batch. */
    public Map metrics(Optional consumed) {
        if (latest == null || !consumed.isPresent()) {
            return Collections.emptyMap();
        }
        try {
            return behind(JSON.readTree(((Offset) consumed.get()).json()), JSON.readTree(latest.json()));
        } catch (java.io.IOException error) {
            throw new IllegalStateException("an offset is not JSON: " + error, error);
        }
    }

    private static Map behind(JsonNode consumed, JsonNode latest) {
        long least = Long.MAX_VALUE;
        long most = 0;
        long sum = 0;
        int count = 0;
        for (Iterator topics = latest.fieldNames(); topics.hasNext();) {
            String topic = (String) topics.next();
            for (Iterator partitions = ((JsonNode) latest.get(topic)).fieldNames(); partitions.hasNext();) {
                String partition = (String) partitions.next();
                long missing = offset(latest, topic, partition) - offset(consumed, topic, partition);
                least = Math.min(least, missing);
                most = count == 0 ? missing : Math.max(most, missing);
                sum += missing;
                count++;
            }
        }
        if (count == 0) {
            return Collections.emptyMap();
        }
        HashMap found = new HashMap();
        found.put("minOffsetsBehindLatest", String.valueOf(least));
        found.put("maxOffsetsBehindLatest", String.valueOf(most));
        found.put("avgOffsetsBehindLatest", String.valueOf((double) sum / count));
        return found;
    }

    private static long offset(JsonNode offsets, String topic, String partition) {
        return ((JsonNode) ((JsonNode) offsets.path(topic)).path(partition)).asLong(0L);
    }

    // ── The stream itself ───────────────────────────────────────────────────────────────────────────────────────

    public Offset reportLatestOffset() {
        latest = admission.reportLatestOffset();
        return latest;
    }

    public Offset latestOffset() {
        return stream.latestOffset();
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
        return admission.latestOffset(start, limit);
    }

    public ReadLimit getDefaultReadLimit() {
        return admission.getDefaultReadLimit();
    }

    public void prepareForTriggerAvailableNow() {
        admission.prepareForTriggerAvailableNow();
    }

    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return stream.planInputPartitions(start, end);
    }

    public PartitionReaderFactory createReaderFactory() {
        return stream.createReaderFactory();
    }

    public Offset initialOffset() {
        return stream.initialOffset();
    }

    public Offset deserializeOffset(String json) {
        return stream.deserializeOffset(json);
    }

    public void commit(Offset end) {
        stream.commit(end);
    }

    public void stop() {
        stream.stop();
    }

    public String toString() {
        return stream.toString();
    }
}
