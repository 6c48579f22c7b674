// What Spark finds for format("tidewheel") in a registered session. Compiled by Spark's own Janino; see java_provider.py.

package tidewheel.spark;

import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.LogicalWriteInfoImpl;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** Our Python source, as Spark's own class for Python sources calls it, with options that Spark lost or that we add. */
public class TidewheelProvider extends PythonDataSourceV2 implements DataSourceRegister {
  private static final String FORMAT = "tidewheel";
  private final Map plan;
  private Map kept = new HashMap();
  PythonDataSourceReadInfo planned;

  /** Called by Spark, which sets the name afterwards. */
  public TidewheelProvider() {
    this.plan = new HashMap();
  }

  /** For one step of one scan: `plan` tells our Python code that nobody else will use what it plans. */
  TidewheelProvider(Map kept, Map plan) {
    this.kept = kept;
    this.plan = new HashMap(plan);
    this.setShortName(FORMAT);
  }

  public String shortName() {
    return FORMAT;
  }

  /** Properties are the options of a load or a save; of a table in Spark's catalog, what CREATE TABLE said, for Spark forgets it later. */
  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    this.kept = new HashMap();
    for (Iterator all = properties.keySet().iterator(); all.hasNext(); ) {
      String name = (String) all.next();
      if (name.startsWith("option.")) this.kept.put(name.substring(7), properties.get(name));
    }
    // What Spark calls the path of a table in its catalog is one that it made up, or a relative one in a folder of Spark's.
    boolean inCatalog = properties.containsKey("provider");
    Object path = properties.get(inCatalog ? "location" : "path");
    if (path != null) this.kept.put("path", path);
    if (inCatalog) this.kept.put("tidewheelCatalog", "true");
    return new TidewheelTable(this, this.kept.isEmpty() ? schema : plain(schema), this.kept);
  }

  /** Without what sessions that have no provider of ours find a table by: columns hand it on to whatever is made of them. */
  private static StructType plain(StructType schema) {
    StructField[] fields = new StructField[schema.fields().length];
    for (int i = 0; i < fields.length; i++) {
      StructField field = schema.fields()[i];
      boolean marked = field.metadata().contains("tidewheel.location");
      fields[i] = marked ? new StructField(field.name(), field.dataType(), field.nullable(), Metadata.empty()) : field;
    }
    return new StructType(fields);
  }

  public PythonDataSourceCreationResult getOrCreateDataSourceInPython(String name, CaseInsensitiveStringMap options, Option schema) {
    Map more = new HashMap(located(options, this.kept).asCaseSensitiveMap());
    more.putAll(this.plan);
    return super.getOrCreateDataSourceInPython(name, new CaseInsensitiveStringMap(more), schema);
  }

  /** Options, with those of CREATE TABLE if they do not say which table. */
  private static CaseInsensitiveStringMap located(CaseInsensitiveStringMap options, Map kept) {
    if (options.containsKey("path") || options.containsKey("paths") || options.containsKey("warehouse")) return options;
    Map more = new HashMap(options.asCaseSensitiveMap());
    for (Iterator all = kept.keySet().iterator(); all.hasNext(); ) {
      String one = (String) all.next();
      if (!options.containsKey(one)) more.put(one, kept.get(one));
    }
    return new CaseInsensitiveStringMap(more);
  }

  public void setReadInfo(PythonDataSourceReadInfo info) {
    this.planned = info;
    super.setReadInfo(info);
  }

  /** Spark's table for a Python source keeps one plan and uses it for all its scans, whatever their filters. */
  public static class TidewheelTable extends PythonTable {
    private final Map kept;

    TidewheelTable(TidewheelProvider provider, StructType schema, Map kept) {
      super(provider, FORMAT, schema);
      this.kept = kept;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      super.newScanBuilder(options); // refuses some options of streams
      return new FreshBuilder(this.kept, this.schema(), options);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      Map more = new HashMap(located(info.options(), this.kept).asCaseSensitiveMap());
      if (isNew() && !info.options().containsKey("ifExists")) more.put("ifExists", "error");
      CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(more);
      return super.newWriteBuilder(new LogicalWriteInfoImpl(info.queryId(), info.schema(), options, info.rowIdSchema(), info.metadataSchema()));
    }

    /** Whether Spark writes to a table that it takes for one just made. It asks nobody, and would add to a table of ours that is there. */
    private static boolean isNew() {
      StackTraceElement[] callers = Thread.currentThread().getStackTrace();
      for (int i = 0; i < callers.length; i++) {
        if (callers[i].getClassName().endsWith(".CreateTableAsSelectExec")) return true;
      }
      return false;
    }
  }

  /** Asks which filters the source takes before it is known which columns are needed, and plans when both are. */
  public static class FreshBuilder implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
    private final Map kept;
    private final StructType schema;
    private final CaseInsensitiveStringMap options;
    private final Map plan = new HashMap();
    private StructType needed;
    private Filter[] taken = new Filter[0];

    FreshBuilder(Map kept, StructType schema, CaseInsensitiveStringMap options) {
      this.kept = kept;
      this.schema = schema;
      this.options = options;
      this.needed = schema;
      this.plan.put("tidewheelScan", "probe");
      this.plan.put("tidewheelSchema", schema.json());
    }

    public Filter[] pushFilters(Filter[] filters) {
      TidewheelProvider source = new TidewheelProvider(this.kept, this.plan);
      PythonScanBuilder asked = new PythonScanBuilder(source, FORMAT, this.schema, this.options);
      Filter[] left = asked.pushFilters(filters);
      this.taken = asked.pushedFilters();
      if (source.planned != null) {
        byte[] question = (byte[]) source.planned.partitions().head();
        this.plan.put("tidewheelAsk", Base64.getEncoder().encodeToString(question));
      }
      return left;
    }

    public Filter[] pushedFilters() {
      return this.taken;
    }

    public void pruneColumns(StructType required) {
      this.needed = required.isEmpty() ? smallest() : required;
    }

    public Scan build() {
      this.plan.put("tidewheelScan", "scan");
      return new PythonScanBuilder(new TidewheelProvider(this.kept, this.plan), FORMAT, this.needed, this.options).build();
    }

    /** Rows without any column cannot be handed over, not even to count them. */
    private StructType smallest() {
      StructField[] fields = this.schema.fields();
      StructField least = fields[0];
      for (int i = 1; i < fields.length; i++) {
        if (fields[i].dataType().defaultSize() < least.dataType().defaultSize()) least = fields[i];
      }
      return new StructType(new StructField[] {least});
    }
  }
}
