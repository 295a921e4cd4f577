package ottla.spark;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Field;
import java.nio.channels.Channels;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonWorker;
import org.apache.spark.api.python.PythonWorkerUtils;
import org.apache.spark.api.python.SpecialLengths;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.errors.QueryCompilationErrors;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The Python process of a streaming query, forked by a daemon that has loaded everything. Spark starts a new Python for
 * each query, which takes half a second of CPU time and shares no memory with the others.
 */
public class ForkedReader extends PythonStreamingSourceRunner {
    private static final String DAEMON = "ottla.spark.daemon";
    private static final int BUFFER = 65536;
    private static final String READ_FUNCTION = "\"read\"";
    private final PythonFunction function;
    private final StructType schema;
    private final scala.collection.immutable.Map environment;
    private PythonWorker worker;

    /** The stream of a query. Null if this version of Spark has other processes, or if the daemon does not run here. */
    public static MicroBatchStream open(PythonTable table, CaseInsensitiveStringMap options, StructType schema) {
        boolean daemons = "true".equals(SQLConf.get().getConfString("spark.python.use.daemon", "true"));
        if (!daemons || File.separatorChar == '\\') {
            return null;
        }
        String name = table.name();
        PythonDataSourceV2 source;
        ForkedReader reader;
        try {
            source = PlanEachQuery.sourceOf(table);
            PythonStreamingSourceRunner plain =
                PythonMicroBatchStream.createPythonStreamingSourceRunner(source, name, schema, options);
            reader = new ForkedReader((PythonFunction) field("func").get(plain), schema);
            field("dataIn");
            field("dataOut");
        } catch (ReflectiveOperationException error) {
            return null;
        } catch (LinkageError error) {
            return null;
        }
        try {
            reader.fork();
        } catch (Exception error) {  // as when this Python has pyspark, but not ottla
            return null;
        }
        try {
            reader.connect();
            reader.checkSupportedFeatures();  // reports what is wrong with the options
            reader.giveReadFunction(source);
        } catch (Throwable error) {  // most of Spark's exceptions are checked ones, in Java's terms
            reader.stop();
            Platform.throwException(error);
        }
        return new PythonMicroBatchStreamWithTriggerAvailableNow(source, name, schema, options, reader);
    }

    public ForkedReader(PythonFunction function, StructType schema) {
        super(function, schema);
        this.function = function;
        this.schema = schema;
        HashMap variables = new HashMap(function.envVars());
        variables.remove("SPARK_LOCAL_DIRS");  // for spilled data
        variables.put("SPARK_AUTH_SOCKET_TIMEOUT", "15");
        variables.put("SPARK_BUFFER_SIZE", String.valueOf(BUFFER));
        variables.put("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER");
        environment = scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala((Map) variables));
    }

    private void fork() {
        Tuple2 made = (Tuple2) ofSpark("createPythonWorker", Tuple2.class, boolean.class, Boolean.TRUE);
        worker = (PythonWorker) made._1();
    }

    /** Says the same as Spark does to a process of its own. */
    private void connect() throws IOException, ReflectiveOperationException {
        worker.selector().close();
        worker.channel().configureBlocking(true);
        DataOutputStream out =
            new DataOutputStream(new BufferedOutputStream(Channels.newOutputStream(worker.channel()), BUFFER));
        DataInputStream in =
            new DataInputStream(new BufferedInputStream(Channels.newInputStream(worker.channel()), BUFFER));
        field("dataOut").set(this, out);
        field("dataIn").set(this, in);
        PythonWorkerUtils.writePythonVersion(function.pythonVer(), out);
        PythonWorkerUtils.writeSparkFiles(
            Option.apply("streaming_job"), CollectionConverters.asScala(function.pythonIncludes()).toSet(), out);
        PythonWorkerUtils.writePythonFunction(function, out);
        PythonWorkerUtils.writeUTF(schema.json(), out);
        out.writeInt(SQLConf.get().arrowMaxRecordsPerBatch());
        out.flush();
        if (in.readInt() == SpecialLengths.PYTHON_EXCEPTION_THROWN()) {
            Platform.throwException(QueryCompilationErrors.pythonDataSourceError(
                "plan", "initialize source", PythonWorkerUtils.readUTF(in)));
        }
    }

    /**
     * Get the function that tasks run. Spark would start two more processes, and ask them for it. The planner learns in
     * return how many tasks run at a time.
     */
    private void giveReadFunction(PythonDataSourceV2 source) {
        byte[][] found = (byte[][]) partitions(READ_FUNCTION, cores())._1();
        if (found.length == 1) {
            source.setReadInfo(new PythonDataSourceReadInfo(found[0], CollectionConverters.asScala(new ArrayList()).toSeq()));
        }
    }

    /** On a cluster the number is not known: executors come and go while a query runs. */
    private static String cores() {
        String master = SQLConf.get().getConfString("spark.master", "");
        boolean isLocal = master.equals("local") || master.startsWith("local[");
        return isLocal ? String.valueOf(SparkSession.active().leafNodeDefaultParallelism()) : "null";
    }

    public void stop() {
        if (worker != null) {
            ofSpark("destroyPythonWorker", void.class, PythonWorker.class, worker);
            worker = null;
        }
    }

    /** Calls a method of SparkEnv. The compiler cannot look at that class, because a library of it is optional. */
    private Object ofSpark(String name, Class result, Class last, Object argument) {
        Class text = String.class;
        Class[] types = new Class[] {text, text, text, scala.collection.immutable.Map.class, last};
        MethodHandles.Lookup lookup = MethodHandles.publicLookup();
        try {
            Object env = lookup.findStatic(SparkEnv.class, "get", MethodType.methodType(SparkEnv.class))
                .invokeWithArguments(new Object[0]);
            if (env == null) {  // Spark has stopped, and its daemons with it
                return null;
            }
            Object[] given = new Object[] {env, function.pythonExec(), workerModule(), DAEMON, environment, argument};
            return lookup.findVirtual(SparkEnv.class, name, MethodType.methodType(result, types))
                .invokeWithArguments(Arrays.asList(given));
        } catch (Throwable error) {
            Platform.throwException(error);
            return null;
        }
    }

    private static Field field(String name) throws NoSuchFieldException {
        Field found = PythonStreamingSourceRunner.class.getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }
}
