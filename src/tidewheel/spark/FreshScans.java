// Gives every scan of a table a plan of its own. Compiled by Spark's own Janino when a session is registered; see fresh_scans.py.

import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractPartialFunction;

/** Replaces, in an analyzed plan, the tables of a format. */
public class FreshScans extends AbstractPartialFunction {
  private final String format;
  public FreshScans(String format) {
    this.format = format;
  }

  /** The plan with its tables replaced, or null if it has none. */
  public Object replaced(LogicalPlan plan) {
    Object found = plan.transformUpWithSubqueries(this);
    return found == plan ? null : found;
  }

  public boolean isDefinedAt(Object plan) {
    if (!(plan instanceof DataSourceV2Relation)) return false;
    Object table = ((DataSourceV2Relation) plan).table();
    return table.getClass() == PythonTable.class && ((PythonTable) table).name().equalsIgnoreCase(this.format);
  }

  public Object applyOrElse(Object plan, Function1 otherwise) {
    if (!isDefinedAt(plan)) return otherwise.apply(plan);
    DataSourceV2Relation it = (DataSourceV2Relation) plan;
    PythonTable table = (PythonTable) it.table();
    FreshTable fresh = new FreshTable(this.format, table.schema());
    return it.copy(fresh, it.output(), it.catalog(), it.identifier(), it.options(), it.timeTravelSpec());
  }

  /** Spark's table for a Python source keeps one plan and uses it for all its scans, whatever their filters. */
  public static class FreshTable extends PythonTable {
    private final String format;

    public FreshTable(String format, StructType schema) {
      super(new FreshSource(format, new HashMap()), format, schema);
      this.format = format;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new FreshBuilder(this.format, this.schema(), options);
    }
  }

  /** Asks which filters the source takes before it is known which columns are needed, and plans when both are. */
  public static class FreshBuilder implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
    private final String format;
    private final StructType schema;
    private final CaseInsensitiveStringMap options;
    private final Map plan = new HashMap();
    private StructType needed;
    private Filter[] taken = new Filter[0];

    public FreshBuilder(String format, StructType schema, CaseInsensitiveStringMap options) {
      this.format = format;
      this.schema = schema;
      this.options = options;
      this.needed = schema;
      this.plan.put("tidewheelScan", "probe");
      this.plan.put("tidewheelSchema", schema.json());
    }

    public Filter[] pushFilters(Filter[] filters) {
      FreshSource source = new FreshSource(this.format, this.plan);
      PythonScanBuilder asked = new PythonScanBuilder(source, this.format, this.schema, this.options);
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
      return new PythonScanBuilder(new FreshSource(this.format, this.plan), this.format, this.needed, this.options).build();
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

  /** Tells our Python code, by options, that nobody else will use what it plans. */
  public static class FreshSource extends PythonDataSourceV2 {
    public PythonDataSourceReadInfo planned;
    private final Map plan;

    public FreshSource(String format, Map plan) {
      this.plan = new HashMap(plan);
      this.setShortName(format);
    }

    public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
        String name, CaseInsensitiveStringMap options, Option schema) {
      Map more = new HashMap(options.asCaseSensitiveMap());
      more.putAll(this.plan);
      return super.getOrCreateDataSourceInPython(name, new CaseInsensitiveStringMap(more), schema);
    }

    public void setReadInfo(PythonDataSourceReadInfo info) {
      this.planned = info;
      super.setReadInfo(info);
    }
  }
}
