package ottla.spark;

import java.lang.reflect.Field;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Creates the optimizer rule of a session. Spark's own compiler for generated code (Janino) compiles this file: no
 * generics, no lambdas.
 */
public class PlanEachQuery extends AbstractFunction1 {
    private static final Map ROWS = Collections.synchronizedMap(new IdentityHashMap());

    public Object apply(Object session) {
        return new PlanOttla((SparkSession) session);
    }

    /** From now on, queries read these rows instead of a cached frame. */
    public void replace(InMemoryRelation frame, InMemoryRelation rows) {
        ROWS.put(frame.cacheBuilder(), rows);
    }

    public void forget(InMemoryRelation frame) {
        ROWS.remove(frame.cacheBuilder());
    }

    static InMemoryRelation rows(Object node) {
        return node instanceof InMemoryRelation
            ? (InMemoryRelation) ROWS.get(((InMemoryRelation) node).cacheBuilder())
            : null;
    }

    /** The options of CREATE TABLE … USING ottla OPTIONS (…), which Spark does not give to Python sources. */
    public static CaseInsensitiveStringMap options(
            SparkSession session, Option catalog, Option identifier, CaseInsensitiveStringMap given) throws Exception {
        if (catalog.isEmpty() || identifier.isEmpty()) {
            return given;
        }
        if (!"spark_catalog".equals(((CatalogPlugin) catalog.get()).name())) {
            return given;
        }
        Identifier name = (Identifier) identifier.get();
        Option database = name.namespace().length == 0 ? Option.empty() : Option.apply(name.namespace()[0]);
        TableIdentifier table = new TableIdentifier(name.name(), database);
        HashMap all = new HashMap(CollectionConverters.asJava(
            session.sessionState().catalog().getTableMetadata(table).storage().properties()));
        all.putAll(given.asCaseSensitiveMap());
        return new CaseInsensitiveStringMap(all);
    }

    /** The Python source of a table, which no method returns. */
    public static PythonDataSourceV2 sourceOf(PythonTable table) throws ReflectiveOperationException {
        Field[] fields = PythonTable.class.getDeclaredFields();
        for (int i = 0; i < fields.length; i++) {
            if (fields[i].getType() == PythonDataSourceV2.class) {
                fields[i].setAccessible(true);
                return (PythonDataSourceV2) fields[i].get(table);
            }
        }
        throw new NoSuchFieldException("PythonTable.ds");
    }
}

/** Runs once for each query, after Spark has moved the filters to the tables, and before it pushes them into them. */
class PlanOttla extends Rule {
    private final SparkSession session;

    PlanOttla(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        return plan.transformDown(new Change(session));
    }
}

class Change extends AbstractPartialFunction {
    private static final String NAME = "ottla";
    private final SparkSession session;

    Change(SparkSession session) {
        this.session = session;
    }

    public boolean isDefinedAt(Object node) {
        return isOttla(node) || isUpdate(node) || PlanEachQuery.rows(node) != null;
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
        if (isOttla(node)) {
            return fresh((DataSourceV2Relation) node);
        }
        InMemoryRelation rows = PlanEachQuery.rows(node);
        if (rows != null) {
            return rows.withOutput(((InMemoryRelation) node).output());
        }
        return isUpdate(node) ? asAppend((LogicalPlan) node) : otherwise.apply(node);
    }

    private static boolean isOttla(Object node) {
        if (node instanceof DataSourceV2Relation) {
            node = ((DataSourceV2Relation) node).table();
        }
        return node instanceof PythonTable && NAME.equalsIgnoreCase(((PythonTable) node).name());
    }

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────────────────────

    /** A relation that plans its offsets again: Spark keeps the partitions of a Python source in PythonDataSourceV2. */
    private LogicalPlan fresh(DataSourceV2Relation relation) {
        try {
            PythonTable old = (PythonTable) relation.table();
            PythonDataSourceV2 source = new PythonDataSourceV2();
            source.setShortName(NAME);
            CaseInsensitiveStringMap given = relation.options();
            CaseInsensitiveStringMap options =
                PlanEachQuery.options(session, relation.catalog(), relation.identifier(), given);
            if (options == given) {
                Field created = PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
                created.setAccessible(true);
                created.set(source, created.get(PlanEachQuery.sourceOf(old)));  // saves a Python process
            }
            PythonTable table = new PythonTable(source, NAME, old.schema());
            return changed(relation, old, table, given, options);
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException("ottla cannot plan queries with this version of Spark: " + error, error);
        }
    }

    // ── Writes ──────────────────────────────────────────────────────────────────────────────────────────────────

    private static boolean isUpdate(Object node) {
        if (!(node instanceof WriteToMicroBatchDataSource)) {
            return false;
        }
        Object[] parts = parts((LogicalPlan) node);
        boolean ottla = false;
        boolean update = false;
        for (int i = 0; i < parts.length; i++) {
            ottla |= isOttla(parts[i]);
            update |= OutputMode.Update().equals(parts[i]);
        }
        return ottla && update;
    }

    /** Changed rows are appended, as in Spark's Kafka sink. Spark accepts no update mode for Python sinks. */
    private static LogicalPlan asAppend(LogicalPlan write) {
        return changed(write, OutputMode.Update(), OutputMode.Append(), null, null);
    }

    // ── Nodes ───────────────────────────────────────────────────────────────────────────────────────────────────

    private static Object[] parts(LogicalPlan node) {
        Object[] found = new Object[node.productArity()];
        for (int i = 0; i < found.length; i++) {
            found[i] = node.productElement(i);
        }
        return found;
    }

    /** A copy with other parts. The number of parts depends on the version of Spark. */
    private static LogicalPlan changed(LogicalPlan node, Object old, Object now, Object other, Object otherNow) {
        Object[] parts = parts(node);
        for (int i = 0; i < parts.length; i++) {
            if (parts[i] == old || old.equals(parts[i])) {
                parts[i] = now;
            } else if (other != null && parts[i] == other) {
                parts[i] = otherNow;
            }
        }
        return (LogicalPlan) node.makeCopy(parts);
    }
}
